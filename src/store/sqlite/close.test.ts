import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { temporaryFile } from "../kinds.contract.ts";
import { openStore } from "../open.ts";
import { sql, table } from "../sql.ts";

test("a store that was closed is one file with everything in it", async () => {
  for (let round = 0; round < 15; round++) {
    const place = temporaryFile();
    const database = await openStore(place.path);
    await database.write([sql`insert into ${table("step_tracker")} (name) values ('kept')`]);
    await database.read(sql`select 1 as one`);
    await database.close();
    const left = readdirSync(place.folder);
    await place.remove();
    expect(left).toEqual(["flotilla.db"]);
  }
});
