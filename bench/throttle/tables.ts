import { markdownTable } from "../render/shown.ts";
import { ours } from "./measures.ts";
import type { Results } from "./results.ts";
import type { Row } from "./rows.ts";
import { churn, uneven } from "./scenarios.ts";

const unlike: readonly string[] = [churn.name, uneven.name];

/** For each scenario all contenders with 8 pods, then ours with all numbers of pods, then the conditions. */
export function tablesOfThrottle({ rows, contenders, day, commit, costUs }: Results): string {
  const names = Object.keys(contenders);
  const scenarios = [...new Set(rows.map((row) => row.scenario))];
  const overview = (title: string, capacity: number, wall: string) => {
    const played = rows.filter(
      (row) => row.capacity === capacity && row.wall === wall && row.pods === 8,
    );
    const present = scenarios.filter((name) => played.some((row) => row.scenario === name));
    const find = (contender: string, scenario: string) =>
      played.find((row) => row.contender === contender && row.scenario === scenario);
    return [
      `**${title}**`,
      markdownTable([
        ["", ...present],
        ...names.map((name) => [
          `\`${name}\``,
          ...present.map((scenario) => scoreCell(find(name, scenario))),
        ]),
      ]),
    ];
  };
  const mine = rows.filter((row) => row.contender === ours);
  return [
    ...overview("A hard wall at 20, 8 pods: used · throttled", 20, "hard"),
    ...overview("A soft wall at 20, 8 pods: used · throttled", 20, "soft"),
    ...overview("A hard wall at 200, 8 pods: used · throttled", 200, "hard"),
    ...overview("A soft wall at 200, 8 pods: used · throttled", 200, "soft"),
    ...overview("A bucket of 20 calls at once per 100 ms, 8 pods: used · throttled", 20, "bucket"),
    "**Ours in every round**",
    markdownTable([
      [
        "",
        "pods",
        "used",
        "throttled",
        "score",
        "to adapt, s",
        "answers slower",
        "fairness",
        "peak / capacity",
        "over the bound",
        "used since the change",
      ],
      ...mine.map((row) => [
        `${row.scenario}, ${row.wall} ${row.capacity}`,
        String(row.pods),
        percent(row.use),
        percent(row.throttled),
        row.score.toFixed(3),
        row.adaptS === undefined ? `> ${row.restS}` : row.adaptS.toFixed(1),
        `× ${row.slowdown.toFixed(2)}`,
        // Where pods don't want the same, or aren't there for the same time, it says nothing.
        unlike.includes(row.scenario) ? "" : row.fairness.toFixed(3),
        row.peak.toFixed(2),
        String(row.overBound ?? ""),
        percent(row.overall.use),
      ]),
    ]),
    [
      ...Object.entries(contenders).map(([name, about]) => `- \`${name}\`: ${about}.`),
      ...(costUs === undefined
        ? []
        : [`- \`run\` around a no-op: ${costUs.toFixed(2)} µs of CPU.`]),
      `- Simulated ${day} at ${commit}.`,
    ].join("\n"),
  ].join("\n\n");
}

function scoreCell(row: Row | undefined): string {
  return row ? `${percent(row.use)} · ${percent(row.throttled)}` : "";
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
