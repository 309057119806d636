import { describe, expect, test } from "vitest";
import type { Network } from "./options.ts";
import { simulatedClient } from "./contract/simulated-client.ts";

describe("a client does no more than is needed", () => {
  test("joins once, whatever is sent there and whatever its inbox reports of it", async () => {
    const { clock, server, client, count } = simulatedClient();
    const session = client.session("a");
    session.subscribe(() => {});
    client.inbox().subscribe(() => {});
    await clock.advance(2_000);
    for (const text of ["one", "two"]) {
      void session.send(text);
      await clock.advance(1_000);
      server.make("a", { isReported: true });
      await clock.advance(1_000);
    }
    expect(session.get()).toMatchObject({ status: "live", lastSeq: 2, unsent: [] });
    expect(count("join", "a")).toBe(1);
    client.close();
  });

  test("leaves a session that it follows no longer, and joins anew from its position", async () => {
    const { clock, server, client, sent, count } = simulatedClient();
    server.write("a", "one");
    const leave = client.session("a").subscribe(() => {});
    client.session("b").subscribe(() => {});
    await clock.advance(2_000);
    leave();
    await clock.advance(4_000);
    expect([count("leave", "a"), count("leave", "b")]).toEqual([1, 0]);
    client.session("a").subscribe(() => {});
    await clock.advance(1_000);
    expect(sent.at(-1)).toMatchObject({ type: "join", session: "a", lastSeq: 1 });
    client.close();
  });

  test("forgets of many sessions only those without subscribers", async () => {
    const { clock, server, client } = simulatedClient();
    const names = Array.from({ length: 40 }, (_, n) => `s${n}`);
    for (const name of names) server.write(name, name);
    const resets: string[] = [];
    for (const name of names) {
      client.session(name).on(({ type }) => type === "reset" && resets.push(name));
    }
    await clock.advance(10_000);
    const leave = client.session("other").subscribe(() => {});
    leave();
    await clock.advance(10_000);
    expect(resets).toEqual([]);
    expect(names.filter((name) => client.session(name).get().lastSeq !== 1)).toEqual([]);
    client.close();
  });

  test("notifies of its connection only when that has changed", async () => {
    const { clock, client, count } = simulatedClient();
    const seen: string[] = [];
    client.connection.subscribe(() => seen.push(client.connection.get().status));
    client.session("a").subscribe(() => {});
    await clock.advance(60_000);
    expect(count("ping")).toBeGreaterThan(1);
    expect(seen).toEqual(["connecting", "open"]);
    client.close();
  });

  test("listens to the network once, and no longer when it is closed", async () => {
    let listening = 0;
    const network: Network = {
      isOnline: () => true,
      onChange() {
        listening++;
        return () => listening--;
      },
    };
    const { clock, client } = simulatedClient({ network });
    for (let n = 0; n < 2; n++) {
      const leave = client.session("a").subscribe(() => {});
      await clock.advance(1_000);
      leave();
      await clock.advance(20_000);
      expect([client.connection.get().status, listening]).toEqual(["idle", 1]);
    }
    client.close();
    expect(listening).toBe(0);
  });
});
