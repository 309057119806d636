import { readFileSync } from "node:fs";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * Starts with the files that run a whole contract on every store, and with those that simulate. They take
 * longest and are a few lines each, so vitest, which goes by size where it has no record of an earlier
 * run, would start them last, and all but one of the workers would be idle until they are done.
 */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const group = ({ project }: TestSpecification) => project.config.sequence.groupOrder;
    return sorted.toSorted((a, b) => group(a) - group(b) || place(a) - place(b));
  }
}

function place({ moduleId }: TestSpecification): number {
  const simulates = moduleId.includes("/test/simulation/");
  return simulates || runsContracts.test(readFileSync(moduleId, "utf8")) ? 0 : 1;
}

const runsContracts = /for \(const \w+ of (?:storeKinds|usualKinds)\)/;
