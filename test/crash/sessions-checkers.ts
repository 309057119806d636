import type { SessionEvidence } from "./sessions-evidence.ts";
import { saidChecks } from "./sessions-said-checkers.ts";
import { seenChecks } from "./sessions-seen-checkers.ts";
import { turnChecks } from "./sessions-turn-checkers.ts";

/** Everything that speaks against the promises about sessions. */
export function sessionViolations(evidence: SessionEvidence): string[] {
  return [...saidChecks, ...seenChecks, ...turnChecks].flatMap((check) => check(evidence));
}
