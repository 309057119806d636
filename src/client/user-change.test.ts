import { describe, expect, test } from "vitest";
import { viewOf } from "../protocol/view.ts";
import { simulatedClient } from "./contract/simulated-client.ts";

describe("a client whose user has changed", () => {
  const changed = async () => {
    const all = simulatedClient();
    const { clock, server, client } = all;
    for (const session of ["a", "b"]) server.write(session, `${session}'s secret`);
    const leave = client.session("b").subscribe(() => {});
    client.session("a").subscribe(() => {});
    await clock.advance(2_000);
    leave();
    await clock.advance(5_000);
    expect(client.session("b").get()).toMatchObject({ status: "idle", lastSeq: 1 });
    return all;
  };

  test("shows nothing of what the one before had, followed or not, until it is joined again", async () => {
    const { clock, server, client, sent } = await changed();
    const seen: string[][] = [];
    const { subscribe, get } = client.session("a");
    subscribe(() => seen.push(get().messages.map(({ id }) => id)));
    server.user = "bob";
    server.remove("a");
    server.make("a");
    server.write("a", "for bob");
    server.end(1001);
    await clock.advance(5_000);
    expect(client.connection.get()).toMatchObject({ status: "open", user: "bob" });
    expect(client.session("b").get()).toMatchObject({ lastSeq: 0, messages: [] });
    expect(get().messages).toEqual(viewOf(server.log("a")));
    expect(seen).toContainEqual([]);
    expect(sent.findLast(({ type }) => type === "join")).toMatchObject({
      session: "a",
      lastSeq: 0,
    });
    client.close();
  });

  test("sends nothing that the one before had queued", async () => {
    const { clock, server, client } = await changed();
    server.isUp = false;
    server.end(1001);
    await clock.advance(500);
    const sending = client.session("a").send("from ada");
    const refused = sending.catch((error: unknown) => error);
    server.user = "bob";
    server.isUp = true;
    await clock.advance(30_000);
    expect(await refused).toMatchObject({ code: "forbidden" });
    expect(server.log("a").map(({ messageId }) => messageId)).toEqual(["a's secret"]);
    client.close();
  });

  test("follows what wasn't there for the one before", async () => {
    const { clock, server, client } = simulatedClient();
    const session = client.session("a");
    server.remove("a");
    session.subscribe(() => {});
    await clock.advance(2_000);
    const gone: string[] = [];
    session.on(({ type }) => gone.push(type));
    server.user = "bob";
    server.make("a");
    server.end(1001);
    await clock.advance(900);
    expect(gone).toEqual(["gone", "joined"]);
    client.close();
  });
});
