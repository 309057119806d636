import { agentSpecs } from "./agents.ts";
import { deadLetterSpecs } from "./dead-letters.ts";
import { fleetSpecs } from "./fleet.ts";
import { gateSpecs } from "./gates.ts";
import { runSpecs } from "./runs.ts";
import { scheduleSpecs } from "./schedules.ts";
import { sessionSpecs } from "./sessions.ts";
import type { RouteSpec } from "./spec.ts";
import { taskSpecs } from "./tasks.ts";
import { throttleSpecs } from "./throttles.ts";

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
