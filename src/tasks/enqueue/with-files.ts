import { FlotillaError } from "../../base/errors.ts";
import { findUnlinked, linkFiles, lockSources } from "../../files/sql/task-links.ts";
import type { Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { filesOf, type NewTask, replaceTaskFiles } from "../sql/enqueue.ts";

/** Sends the statements of an insert. */
export type Send = (
  statements: readonly Statement[],
  options: {
    /** The statements to send once an earlier send may have landed. Default: the same ones. */
    again?: () => readonly Statement[];
    /** True if an earlier write of the same call has stored a task. */
    begun: boolean;
  },
) => Promise<{ tables: Row[][]; repeated: boolean }>;

/**
 * Has tasks refer to their files in each write that stores some. The files stay from its first statement on, and
 * where one was gone before, none of the tasks is stored.
 */
export function withFiles(newTasks: readonly NewTask[], send: Send): Send {
  const links = filesOf(newTasks);
  if (links.length === 0) return send;
  const after = [linkFiles(links), ...replaceTaskFiles(newTasks), findUnlinked(links)];
  const within = (statements: readonly Statement[]) => [
    lockSources(links),
    ...statements,
    ...after,
  ];
  return async (statements, { again, begun }) => {
    const { tables, repeated } = await send(within(statements), {
      begun,
      again: () => within(again ? again() : statements),
    });
    const [gone] = tables.at(-1)!;
    if (gone) throw fileGone(gone);
    return { tables: tables.slice(1, -after.length), repeated };
  };
}

function fileGone(row: Row): FlotillaError {
  const hash = row["hash"] as string;
  return new FlotillaError(
    "not_found",
    `the file ${hash} was deleted before the task was stored: a file waits an hour for its task, so store it again`,
    { details: { hash } },
  );
}
