import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../runtime/connect.ts";
import { encryption } from "../../store/codec/encryption.ts";
import { temporaryFile } from "../../store/contract/kinds.ts";
import { runDoctor } from "./doctor.ts";

let place: ReturnType<typeof temporaryFile>;
let store: string;
beforeEach(() => {
  place = temporaryFile();
  store = `sqlite:${place.path}`;
});
afterEach(() => place.remove());

const url = "https://agent.example/chat";
const headers = { Authorization: "a-secret-of-the-agent" };
const codec = encryption({ keys: { one: "07".repeat(32) } });

const secretsIn = async (hasCodec: boolean) => {
  const checks = await runDoctor(store, "full", { hasCodec });
  const { verdict, message } = checks.find(({ name }) => name === "secrets")!;
  expect(message).not.toContain("a-secret-of-the-agent");
  return { verdict, message };
};

describe("the doctor", () => {
  test("finds nothing wrong with agents that have no secrets, or whose secrets are encoded", async () => {
    await using plain = connect(store);
    await plain.agents.create("default", "open", { settings: { url } });
    await using encoding = connect(store, { codec });
    await encoding.agents.create("default", "closed", { settings: { url, headers } });
    expect(await secretsIn(true)).toMatchObject({ verdict: "ok" });
    expect(await secretsIn(false)).toMatchObject({ verdict: "ok" });
  });

  test("warns of secrets of agents in plain text, and says what to do", async () => {
    await using flotilla = connect(store);
    await flotilla.agents.create("default", "first", { settings: { url, headers } });
    await flotilla.agents.create("acme", "second", { settings: { url, headers } });
    expect(await secretsIn(false)).toMatchObject({
      verdict: "warn",
      message: expect.stringMatching(/^2 stored agents .* `codec` .*encryption.*agents set/),
    });
    expect(await secretsIn(true)).toMatchObject({
      verdict: "warn",
      message: expect.stringMatching(/^2 stored agents .*from before .* codec.*agents set/),
    });
    await using encoding = connect(store, { codec });
    for (const [tenant, name] of [
      ["default", "first"],
      ["acme", "second"],
    ] as const) {
      await encoding.agents.replace(tenant, name, { settings: { url, headers } });
    }
    expect(await secretsIn(true)).toMatchObject({ verdict: "ok" });
  });
});
