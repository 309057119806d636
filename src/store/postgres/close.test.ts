import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { sql } from "../sql.ts";
import { openPostgres } from "./postgres.ts";

/** A message of the server's: its letter, the length of what follows with itself, and the rest. */
function message(letter: string, body: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(letter), length, body]);
}

const authenticated = message("R", Buffer.from([0, 0, 0, 0]));
const ready = message("Z", Buffer.from("I"));
const farewell = message(
  "E",
  Buffer.from("SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"),
);

test("a session that is ended with the same breath that began it is an error, and not the end of the process", async () => {
  // Both in one piece, as they arrive where the process was too busy to read the first.
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => socket.end(Buffer.concat([authenticated, ready, farewell])));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const database = await openPostgres({ url: `postgres://nobody@127.0.0.1:${port}/none` });

  const asked = database.read(sql`select 1`);
  await expect(asked).rejects.toMatchObject({ name: "FlotillaError" });
  await database.close();
});
