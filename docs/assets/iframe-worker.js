// Browsers start no workers for pages opened from a disk; there the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...scripts) => Promise.all(scripts.map((script) => load(inside, script)));
      this.send = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      load(inside, url).then(() => {
        this.waiting.forEach(this.send);
        this.waiting = null;
      });
    }
    set onmessage(listener) {
      this.addEventListener("message", listener);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.send(data);
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;

  const load = (inside, url) =>
    new Promise((done) => {
      const script = inside.document.createElement("script");
      script.src = new URL(url, document.baseURI);
      script.onload = done;
      inside.document.body.append(script);
    });
}
