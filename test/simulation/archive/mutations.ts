/** The fences of an archive behind a log, and how each is taken out. */
import { type Mutation, of } from "../mutation.ts";

const archive = of("sessions/log/archive");
const statements = of("sessions/log/sql/archive");

const list: readonly Mutation[] = [
  {
    name: "archive: marked and trimmed before the commit",
    edits: [
      archive(
        "const archived = Math.max(log.watermark?.offset ?? 0, lastMark().archived);",
        "const archived = end.offset;",
      ),
      // What is trimmed can't be taken for lost by the archive, and stored again.
      archive("Math.min(below, log.watermark?.offset ?? 0)", "below"),
    ],
  },
  {
    name: "archive: the watermark in a transaction of its own",
    edits: [
      archive(
        "const [moved] = await database.write(storeFlush(flush), starts ? { notify: true } : {});",
        "const [first, ...others] = storeFlush(flush);\n" +
          "      const [moved] = await database.write([first!]);\n" +
          "      if (moved!.length > 0 && others.length > 0) await database.write(others);",
      ),
    ],
  },
  {
    name: "archive: busy sessions left out of marks",
    edits: [archive("busy: headers.map(({ header }) => header),", "busy: [],")],
  },
  {
    name: "archive: served before its replay has ended",
    edits: [
      of("sessions/log/jetstream")(
        "if (gap !== undefined) throw unavailable(",
        "if (gap === null) throw unavailable(",
      ),
    ],
  },
  {
    name: "archive: moved from wherever it stands",
    edits: [statements(" and log_offset = ${from}", "")],
  },
  {
    name: "archive: a lost answer counts as stored",
    edits: [
      archive(
        "if (found && isSame && found.offset === from) throw notStored(log);",
        "if (found && isSame && found.offset === from) return stand(log, to);",
      ),
    ],
  },
  {
    name: "archive: read before what isn't in it",
    edits: [
      archive(
        "const part = await peeks(sessionId).entries(sessionId, page);",
        "const early = await stored.entries(sessionId, page);\n" +
          "      const below = () => ({ ...stored, entries: async () => early });\n" +
          "      const part = await peeks(sessionId).entries(sessionId, page);",
      ),
    ],
  },
  {
    name: "archive: set back, and not filled again",
    edits: [archive("if (found.offset < archivedTo) {", "if (found.offset < 0) {")],
  },
  {
    name: "archive: a new stream without what isn't archived",
    edits: [
      of("sessions/log/jetstream")(
        'if (record) await add({ kind: "record", recordId: record.recordId, record });\n    else ',
        "",
      ),
    ],
  },
  {
    name: "archive: what only an owner has is forgotten where a release fails",
    edits: [
      archive(
        "if (!each.isOver) {\n        if (!kept.has",
        "if (each.isOver) {\n        if (!kept.has",
      ),
    ],
  },
  {
    name: "archive: stored behind a proof that wasn't answered",
    edits: [
      of("sessions/log/jetstream")(
        "|| doubted.has(logKey(life))) return outcome",
        ") return outcome",
      ),
      of("sessions/log/jetstream")(
        "if (doubted.has(key)) throw unavailable(`it isn't",
        "if (doubted.has(life.logId as never)) throw unavailable(`it isn't",
      ),
      of("sessions/log/jetstream")("if (doubted.has(key)) await hasLostItsEnd(life, at);"),
    ],
  },
  {
    name: "archive: memory counts without a proof",
    edits: [
      archive("if (!isOver && !isProven()) await markNow();"),
      archive(
        "if (!isOver && !isProven()) throw unavailable(`log ${logId} has a record in doubt`);",
      ),
    ],
  },
];

export const archiveMutations: readonly Mutation[] = list.map((each) => ({
  ...each,
  scenario: "archive",
}));
