export { durable, stepOf } from "./durable.ts";
export type { DurableContext, DurableOptions } from "./durable.ts";
export { later } from "./later.ts";
export type { Budget } from "../base/usage.ts";
export type { Interrupted } from "./continue.ts";
