export { durable, stepOf } from "./durable.ts";
export type { DurableContext, DurableOptions } from "./durable.ts";
export type { Budget, Usage } from "./meter.ts";
