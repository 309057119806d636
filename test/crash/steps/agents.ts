import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export type AgentsGiven = {
  /** The places at which agents go no further, by their labels. */
  readonly stops?: Readonly<Record<string, string>>;
};

/** What a process tells of an agent. */
export type AgentReport = {
  readonly pod: number;
  readonly label: string;
  readonly place: string;
  /** The key of the step that begins here. */
  readonly begins?: string;
  /** The key that a tool has done its effect under. */
  readonly effect?: string;
};

/** What all processes have told, one after the other. */
export function readAgentReports(folder: string): AgentReport[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".agents"));
  return files.flatMap((name) => {
    const lines = readFileSync(join(folder, name), "utf8").split("\n");
    // What follows the last line break is empty, or the line that a kill has torn.
    lines.pop();
    return lines.map((line) => JSON.parse(line) as AgentReport);
  });
}
