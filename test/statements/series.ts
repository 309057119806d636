import * as series from "../../src/series/sql.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

const row = { span: 60_000, at: 120_000, subject: "task:mail", pod: "pod-1", counts: "{}" };

export const seriesStatements: RoomStatements = {
  "src/series/sql.ts": sqlFile(series, {
    storeCounts: () => series.storeCounts([row]),
    toClosedTo: noStatement,
    ensureFold: () => series.ensureFold(),
    readFold: () => series.readFold(),
    closeUpTo: () => series.closeUpTo(120_000),
    unfoldedUpTo: () => series.unfoldedUpTo(120_000, 2_000),
    minutesBefore: () => series.minutesBefore(120_000, 2_000),
    foldedBetween: () => series.foldedBetween(60_000, 0, 120_000),
    storeFold: () =>
      series.storeFold({
        foldId: "fold-2",
        lastFold: "fold-1",
        puts: [{ ...row, pod: "" }],
        deletes: [row],
      }),
    deleteHoursBefore: () => series.deleteHoursBefore(0),
    readSeries: () =>
      series.readSeries("task:mail", { fromMs: 0, toMs: 120_000, spans: [60_000, 3_600_000] }),
    readMinutes: () => series.readMinutes(["flow:order pay", "flow:order ship"], 60_000),
    listSubjects: () => [
      series.listSubjects({ limit: 50 }),
      series.listSubjects({ kind: "task", after: "task:mail", limit: 50 }),
    ],
  }),
};
