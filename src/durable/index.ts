export { durable, stepOf } from "./durable.ts";
export type { DurableContext, DurableOptions } from "./durable.ts";
export type { Budget } from "../base/usage.ts";
