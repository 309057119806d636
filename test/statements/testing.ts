import * as testing from "../../src/testing/sql.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

export const testingStatements: RoomStatements = {
  "src/testing/sql.ts": sqlFile(testing, { readNextDue: () => testing.readNextDue(1_000) }),
};
