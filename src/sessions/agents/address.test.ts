import { describe, expect, test } from "vitest";
import { checkAgentUrl, isAllowedAddress } from "./address.ts";

describe("an agent's URL", () => {
  test.each([
    "https://127.0.0.1/",
    "https://127.1/",
    "https://0x7f.1/",
    "https://2130706433/",
    "https://017700000001/",
    "https://0/",
    "https://10.1.2.3/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "https://169.254.169.254/latest/meta-data",
    "https://168.63.129.16/machine",
    "https://[::ffff:168.63.129.16]/machine",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://198.18.0.1/",
    "https://[::]/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[::127.0.0.1]/",
    "https://[::a9fe:a9fe]/",
    "https://[fe80::1]/",
    "https://[fd00::1]/",
    "https://[fec0::1]/",
    "https://localhost/",
    "https://LOCALHOST./",
    "https://api.localhost/",
    "https://metadata.google.internal/",
    "https://①②⑦.⓪.⓪.①/",
  ])("isn't at %s", (url) => {
    expect(() => checkAgentUrl("agent", url, false)).toThrow(/isn't public/);
  });

  test.each([
    ["https://user@agents.example/", /user or a password/],
    ["https://user:word@agents.example/", /user or a password/],
    ["http://agents.example/", /must begin with https/],
    ["ftp://agents.example/", /must begin with https/],
    ["file:///etc/passwd", /must begin with https/],
    ["javascript:alert(1)", /must begin with https/],
    ["agents.example", /isn't a URL/],
    ["https://", /isn't a URL/],
    [7, /isn't a URL/],
  ])("isn't %s", (url, message) => {
    expect(() => checkAgentUrl("agent", url, false)).toThrow(message);
  });

  test("is what any URL of the public network is", () => {
    expect(checkAgentUrl("agent", "https://agents.example:8443/chat?a=b", false)).toBe(
      "https://agents.example:8443/chat?a=b",
    );
    expect(checkAgentUrl("agent", "https://8.8.8.8/", false)).toBe("https://8.8.8.8/");
  });

  test("may be here and in private networks where that is allowed, also without TLS", () => {
    for (const url of ["http://127.0.0.1:3000/", "http://localhost/", "http://[fd00::1]/"]) {
      expect(checkAgentUrl("agent", url, true)).toBe(url);
    }
  });

  test.each(["http://169.254.169.254/", "http://[fe80::1]/", "http://0.0.0.0/", "http://[::]/"])(
    "is never at %s, whatever is allowed",
    (url) => {
      expect(() => checkAgentUrl("agent", url, true)).toThrow(
        /neither public nor in a private network/,
      );
    },
  );
});

test("services that give machines their secrets are no agents, though they are in private ranges", () => {
  for (const address of [
    "100.100.100.200",
    "fd00:ec2::254",
    "fd20:ce::254",
    "::ffff:6464:64c8",
    "168.63.129.16",
  ]) {
    expect(isAllowedAddress(address, true)).toBe(false);
  }
  expect(isAllowedAddress("100.100.100.201", true)).toBe(true);
});

test("an address that can't be parsed is never allowed", () => {
  for (const address of ["", "agents.example", "1.2.3.4.5", "::g"]) {
    expect(isAllowedAddress(address, true)).toBe(false);
  }
});
