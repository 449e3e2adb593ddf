"""What a schedule of releases costs, and what a budget allows, before anything is run."""

from fedfdp.privacy.planning.planner import Plan, plan

__all__ = ["Plan", "plan"]
