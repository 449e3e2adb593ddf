// What the pages use of Observable Plot; the rest is left out of the script.
export {
  axisX,
  axisY,
  areaY,
  barX,
  cell,
  dot,
  frame,
  gridY,
  lineY,
  link,
  plot,
  rectY,
  ruleX,
  ruleY,
  text,
  tickX,
} from "@observablehq/plot";
export { bin, max, min, nice, ticks } from "d3-array";
