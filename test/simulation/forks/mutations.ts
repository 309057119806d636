/** The fences of forks, files, wakes and deliveries, and how each is taken out. */
import { type Mutation, of } from "../mutation.ts";

const records = of("sessions/log/sql/records");
const files = of("files/sql");

const list: readonly Mutation[] = [
  {
    name: "fork: a shared prefix is deleted under it",
    edits: [records(" and seq > ${heldSeqOf(sql`${messages}.session_id`)}`", "`")],
    by: "prefix",
  },
  {
    name: "file: collected while a send refers to it",
    edits: [
      files("const isUnsent = sql`kept = 0 and at < ${now}", "const isUnsent = sql`at < ${now}"),
    ],
    by: "file",
  },
  {
    name: "file: an upload that begins late makes a remnant of it",
    edits: [
      files(
        "where not exists (select 1 from ${files} file where file.file_id = fresh.file_id)",
        "where fresh.file_id <> ''",
      ),
    ],
    by: "file",
  },
  {
    name: "fork: its files aren't those of its parent",
    edits: [
      files(
        'where ${isOwner({ kind: "session", id: parentId })} and ${isHeld}',
        "where 1 = 0 and ${isHeld}",
      ),
    ],
    by: "file",
  },
  {
    name: "wake: set on though it has fired",
    edits: [
      of("sessions/conversation/wakes")(
        ": wakes.filter((each) => each !== wake),\n  });\n  const { agent, atMs, author } = wake;",
        ": wakes,\n  });\n  const { agent, atMs, author } = wake;",
      ),
    ],
    by: "woken",
  },
  {
    name: "hook: a delivery that comes again is another message",
    edits: [
      of("server/hooks/hooks")(
        "const messageId = `hook-${digestOf(name, id)}`;",
        "const messageId = `hook-${digestOf(name, `${id} ${clock.now()}`)}`;",
      ),
    ],
    by: "delivery",
  },
];

export const forkMutations: readonly Mutation[] = list.map((each) => ({
  ...each,
  scenario: "forks",
}));
