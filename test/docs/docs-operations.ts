import { task } from "flotilla";

export const summarizer = task("summarize", {}, () => {});
