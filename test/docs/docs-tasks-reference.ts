import { task } from "flotilla";

export {
  abort,
  connect,
  contextValue,
  defineConfig,
  snooze,
  startClaimer,
  startPod,
  task,
} from "flotilla";
export { z } from "zod";
export {
  db,
  fetchReport,
  loadUser,
  order,
  pay,
  refund,
  report,
  shipments,
  url,
  type User,
} from "./docs-tasks.ts";

export const summarize = task<{ url: string }>("summarize", {});
export const summarizer = summarize.handle(() => {});
export const fetchPage = task<{ url: string }>("fetch-page", {});
export const countWords = task<object>("count-words", {});
export const countLinks = task<object>("count-links", {});
export declare const store: string;
export declare function readPages(pdf: Uint8Array): Promise<string[]>;
export declare function greet(input: unknown): Promise<string>;
