import { type AgentReport, attemptOver, type StoredSteps } from "./agents.ts";

/** What is known of agents after the faults, and how much these may have cost. */
export type AgentEvidence = {
  /** An agent that ran without a fault. */
  readonly clean: string;
  /** How often each of the others may have lost the process that it ran in. */
  readonly lost: ReadonlyMap<string, number>;
  readonly reports: readonly AgentReport[];
  /** What each has come to. */
  readonly ended: ReadonlyMap<string, string>;
  /** What was stored before each of these processes began. */
  readonly takeovers: readonly { readonly pod: number; readonly stored: StoredSteps }[];
};

/**
 * Agents say what they would have said and do each effect under one key; no call and no tool whose end was
 * stored begins again; and each process that was lost costs one call and one attempt at each tool at most.
 */
export function agentViolations(evidence: AgentEvidence): string[] {
  const { clean, lost, reports, ended, takeovers } = evidence;
  const violations: string[] = [];
  const byLabel = Map.groupBy(reports, ({ label }) => label);
  const of = (label: string) => byLabel.get(label) ?? [];
  const expected = ended.get(clean);
  const effects = effectsOf(of(clean));
  const begun = begunOf(of(clean));

  for (const [label, mayLose] of lost) {
    const said = ended.get(label);
    if (said !== expected) violations.push(`${label} came to ${said}, and not to ${expected}`);
    for (const [place, keys] of effectsOf(of(label))) {
      if (keys.size > 1) violations.push(`${label}: ${place} under ${[...keys].join(" and ")}`);
    }
    const done = [...effectsOf(of(label)).keys()].toSorted();
    if (done.join() !== [...effects.keys()].toSorted().join()) {
      violations.push(`${label} did ${done.join() || "nothing"}`);
    }
    const times = begunOf(of(label));
    const calls = (all: ReadonlyMap<string, number>) =>
      [...all].reduce((sum, [key, count]) => sum + (isCall(key) ? count : 0), 0);
    if (calls(times) > calls(begun) + mayLose) {
      violations.push(`${label} made ${calls(times)} calls, and lost its process ${mayLose} times`);
    }
    // A tool that is told to stop between two steps within it begins again elsewhere, and they answer.
    const pods = new Set(of(label).map(({ pod }) => pod)).size;
    const hasInner = (key: string) => [...times.keys()].some((each) => each.startsWith(`${key}/`));
    for (const [key, count] of times) {
      if (count > (hasInner(key) ? Math.max(pods, 1 + mayLose) : 1 + mayLose)) {
        violations.push(`${label} began ${key} ${count} times, and lost its process ${mayLose}`);
      }
    }
  }
  for (const { pod, stored } of takeovers) {
    for (const { label, begins } of reports.filter((each) => each.pod === pod)) {
      const step = `${label} ${begins}`;
      if (begins !== undefined && stored.has(step)) {
        violations.push(`${step} began again although it was stored`);
      }
    }
  }
  return violations;
}

/** The places that a process can be lost at. */
export function placesOf(reports: readonly AgentReport[], label: string): string[] {
  return reports
    .filter((each) => each.label === label && each.effect === undefined)
    .map(({ place }) => place)
    .filter((place) => place !== attemptOver);
}

const isCall = (key: string) => /(^|\/)model\[/.test(key);

/** The keys of each effect, by what was done. */
function effectsOf(reports: readonly AgentReport[]): Map<string, Set<string>> {
  const effects = new Map<string, Set<string>>();
  for (const { place, effect } of reports) {
    if (effect !== undefined) effects.set(place, (effects.get(place) ?? new Set()).add(effect));
  }
  return effects;
}

function begunOf(reports: readonly AgentReport[]): Map<string, number> {
  const begun = new Map<string, number>();
  for (const { begins } of reports) {
    if (begins !== undefined) begun.set(begins, (begun.get(begins) ?? 0) + 1);
  }
  return begun;
}
