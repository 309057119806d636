import { expect, test } from "vitest";
import { dashboardFolder } from "../base/package-files.ts";
import { hasAddress, mountOf, newActId } from "./browser.ts";

test.each([
  ["", "/"],
  ["/ops", "/ops/"],
  ["/a/b", "/a/b/"],
  ["/@dashboard", "/@dashboard/"],
])("the dashboard that is served below %j is mounted at %s", (prefix, mount) => {
  const file = `https://host:8080${prefix}/${dashboardFolder}/index-BbUE0B6c.js?v=1`;
  expect(mountOf(file)).toBe(mount);
});

test("a name has an address, unless it is dots", () => {
  expect([".", "..", "...", "a/b"].filter(hasAddress)).toEqual(["...", "a/b"]);
});

test("every act has an id of its own", () => {
  const ids = Array.from({ length: 1_000 }, newActId);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
});
