import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe } from "vitest";
import { temporaryFile } from "../contract/kinds.ts";
import { codecContract } from "./contract/codec.ts";

describe("content in a SQLite file with a codec", () => {
  let place: ReturnType<typeof temporaryFile>;
  beforeEach(() => {
    place = temporaryFile();
  });
  afterEach(() => place.remove());

  codecContract(() => ({
    url: `sqlite:${place.path}`,
    dataDir: join(place.folder, "data"),
    // The files themselves, with what is left on freed pages, the log and what pods keep on their disks.
    dump: async () =>
      readdirSync(place.folder, { recursive: true, withFileTypes: true })
        .filter((each) => each.isFile())
        .map((each) => readFileSync(join(each.parentPath, each.name), "latin1"))
        .join("\n"),
    async run(text) {
      const db = new DatabaseSync(place.path);
      db.exec(text((name) => `flotilla_${name}`));
      db.close();
    },
  }));
});
