export type { CrashPoint } from "./crash.ts";
export {
  type PlannedCrash,
  type ReachedState,
  testFlotilla,
  type TestFlotilla,
  type TestOptions,
} from "./test-flotilla.ts";
export type { TestPod } from "./test-pod.ts";
export { type ScriptedAgent, scriptedAgent, type ScriptedAnswer } from "./scripted-agent.ts";
export {
  type LedgerEntry,
  type SimulatedAnswer,
  type SimulatedCall,
  simulatedModel,
  type SimulatedModelOptions,
} from "./simulated-model.ts";
export { runTransition, type TransitionOptions, type TransitionResult } from "./transition.ts";
