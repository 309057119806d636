export type { CrashPoint } from "./crash.ts";
export {
  type PlannedCrash,
  testFlotilla,
  type TestFlotilla,
  type TestOptions,
} from "./flotilla.ts";
export type { TestPod } from "./pod.ts";
export type { ReachedState } from "./reached.ts";
export { type ScriptedAgent, scriptedAgent, type ScriptedAnswer } from "./scripted.ts";
export { runTransition, type TransitionOptions, type TransitionResult } from "./transition.ts";
