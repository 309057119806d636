import { expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { createClientCredentials, createHttp, errorFromWire } from "./http.ts";

test.each([
  [404, "unavailable"],
  [null, "unavailable"],
  ["not_found", "not_found"],
  ["of_a_newer_server", "of_a_newer_server"],
])("the code %j of an answer is %s", (code, shown) => {
  const error = errorFromWire({ code: code as string, message: 5 as unknown as string });
  expect(error).toBeInstanceOf(FlotillaError);
  expect(error).toMatchObject({ code: shown, message: "5" });
});

test("an error that isn't Flotilla's leaves open whether a change was made", async () => {
  const body = JSON.stringify({ error: { code: 502, message: "lost" } });
  const http = createHttp({
    url: () => "http://localhost",
    fetch: () => Promise.resolve(new Response(body, { status: 502 })),
    credentials: createClientCredentials(undefined),
    clock: systemClock,
  });
  const codeOf = (call: Promise<unknown>) => call.catch(({ code }: FlotillaError) => code);
  expect(await codeOf(http("POST", "/v1/tasks"))).toBe("unknown_outcome");
  expect(await codeOf(http("GET", "/v1/tasks"))).toBe("unavailable");
});
