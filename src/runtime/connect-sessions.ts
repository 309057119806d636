import { createMailbox } from "../bus/store-bus.ts";
import { carriedHere } from "../tasks/trace.ts";
import { createSessionsHere, type HereParts, type SessionsHere } from "../sessions/start.ts";
import { createSqlJournal } from "../sessions/log/sql-journal.ts";
import { coldReads } from "../store/database.ts";

type ConnectedParts = Omit<HereParts, "journal" | "bus"> & { address: string };

/**
 * Sessions in a program that is no pod: it asks those who are. Nothing that makes answers is loaded
 * for it, since every command would take longer to start.
 */
export function connectSessions(parts: ConnectedParts): SessionsHere {
  return createSessionsHere(sharedParts(parts));
}

/** What sessions on pods have, too. */
export function sharedParts<Parts extends ConnectedParts>(parts: Parts): Parts & HereParts {
  return {
    ...parts,
    journal: createSqlJournal(parts),
    coldJournal: createSqlJournal({ ...parts, database: coldReads(parts.database) }),
    bus: createMailbox(parts),
    traceHere: carriedHere,
  };
}
