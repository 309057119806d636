import * as bus from "../../src/bus/sql.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

export const busStatements: RoomStatements = {
  "src/bus/sql.ts": sqlFile(bus, {
    insertEnvelopes: () =>
      bus.insertEnvelopes([{ address: "pod-1", sender: "pod-2", seq: 3, body: "[]" }]),
    readEnvelopes: () => bus.readEnvelopes("pod-1", 10),
    deleteEnvelopes: () => bus.deleteEnvelopes("pod-1", [{ sender: "pod-2", seq: 3 }]),
    pruneEnvelopes: () => bus.pruneEnvelopes(100),
    readBusSecret: () => bus.readBusSecret(),
  }),
};
