import * as links from "../../src/links/sql.ts";
import { sql } from "../../src/store/sql.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

export const linkStatements: RoomStatements = {
  "src/links/sql.ts": sqlFile(links, {
    insertLinks: () => links.insertLinks([{ fromId: "task-1", toId: "task-2", what: "task" }]),
    deleteLinksTo: () => links.deleteLinksTo(sql`select 'task-2'`),
    deleteLinksFromSessions: () => links.deleteLinksFromSessions(sql`select 'session-1'`),
    linkedTasks: () =>
      links.linkedTasks("task-1", { before: "task-9", from: "task-2", count: 100 }),
    linkedTasksAfter: () => links.linkedTasksAfter("task-1", { after: "task-2", count: 100 }),
    readLinks: () => [
      links.readLinks("task-1", "task", 100),
      links.readLinks("session-1", "session", 100),
      links.readLinks("nightly", "schedule", 100),
    ],
  }),
};
