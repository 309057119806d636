import type { SessionEvidence } from "./evidence.ts";
import { saidChecks } from "./said-checkers.ts";
import { seenChecks } from "./seen-checkers.ts";
import { turnChecks } from "./turn-checkers.ts";

/** Everything that speaks against the promises about sessions. */
export function sessionViolations(evidence: SessionEvidence): string[] {
  return [...saidChecks, ...seenChecks, ...turnChecks].flatMap((check) => check(evidence));
}
