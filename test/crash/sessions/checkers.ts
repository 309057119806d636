import type { SessionEvidence } from "./evidence.ts";
import { messageChecks } from "./message-checkers.ts";
import { seenChecks } from "./seen-checkers.ts";
import { turnChecks } from "./turn-checkers.ts";

/** Everything that speaks against the promises about sessions. */
export function sessionViolations(evidence: SessionEvidence): string[] {
  return [...messageChecks, ...seenChecks, ...turnChecks].flatMap((check) => check(evidence));
}
