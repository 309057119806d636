import type { TestProject } from "vitest/node";
import { makeBuild } from "./make-build.ts";

const made = globalThis as { flotillaBuild?: Promise<void> };

/** Each kind of test has this as its set-up, and the first of a run makes the build for all. */
export default async function setup(project: TestProject): Promise<void> {
  await (made.flotillaBuild ??= makeBuild());
  project.onTestsRerun(makeBuild);
}
