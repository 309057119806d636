export { durable } from "./durable.ts";
export type { DurableContext, DurableOptions } from "./scope.ts";
export { stepOf } from "./tools.ts";
export { later } from "./later.ts";
export type { Budget } from "../base/usage.ts";
export type { Interrupted } from "./continue.ts";
