import { agentSpecs } from "./api/agents.schema.ts";
import { deadLetterSpecs } from "./api/dead-letters.schema.ts";
import { fleetSpecs } from "./api/fleet.schema.ts";
import { gateSpecs } from "./api/limits.schema.ts";
import { runSpecs } from "./api/runs.schema.ts";
import { scheduleSpecs } from "./api/schedules.schema.ts";
import { sessionSpecs } from "./api/sessions.schema.ts";
import type { RouteSpec } from "./api/schema.ts";
import { taskSpecs } from "./api/tasks.schema.ts";
import { throttleSpecs } from "./api/throttles.schema.ts";

/** Every route that there is. */
export const allSpecs: readonly RouteSpec[] = [
  ...Object.values(taskSpecs),
  ...Object.values(runSpecs),
  ...Object.values(scheduleSpecs),
  ...Object.values(deadLetterSpecs),
  ...Object.values(gateSpecs),
  ...Object.values(throttleSpecs),
  ...Object.values(agentSpecs),
  ...Object.values(sessionSpecs),
  ...Object.values(fleetSpecs),
];
