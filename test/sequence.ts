import { readFileSync } from "node:fs";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * The order of the files of a group, in which a worker takes the next one whenever it is free.
 *
 * Projects come one after the other, since only files of one project share a worker's process. Those that
 * mostly wait are first, and simulations, which only compute, are spread among them: each takes what the
 * waiting ones leave of the machine. Units are last, hundreds of short ones, so that all workers end
 * together; but those of them that run a whole contract on every store go first. They take longest and
 * are a few lines each, and vitest goes by size where it has no record of an earlier run.
 */
export default class FileOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const group = ({ project }: TestSpecification) => project.config.sequence.groupOrder;
    const waiting = sorted.filter(isWaiting);
    const others = sorted.filter((each) => !isWaiting(each));
    const computing = others.filter(isComputing);
    const rest = others.filter((each) => !isComputing(each));
    return [
      ...spread(computing, waiting),
      ...rest.toSorted((a, b) => place(a) - place(b)),
    ].toSorted((a, b) => group(a) - group(b));
  }
}

const waitingProjects = ["own", "browser", "process"];
const isWaiting = ({ project }: TestSpecification) => waitingProjects.includes(project.name);
const isComputing = ({ moduleId }: TestSpecification) => moduleId.includes("/test/simulation/");

/** Puts the first of the few in front, and the others at equal distances. */
function spread<Item>(few: readonly Item[], many: readonly Item[]): Item[] {
  const distance = many.length / Math.max(few.length, 1);
  const all = [...many];
  few.forEach((item, at) => all.splice(Math.floor(at * distance) + at, 0, item));
  return all;
}

function place({ project, moduleId }: TestSpecification): number {
  const isUnit = project.name === "unit";
  return (isUnit ? 2 : 0) + (runsContracts.test(readFileSync(moduleId, "utf8")) ? 0 : 1);
}

const runsContracts = /for \(const \w+ of (?:storeKinds|usualKinds)\)/;
