import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { mountedPathOf } from "./mounted-path.ts";

type Asked = Parameters<typeof mountedPathOf>[0];

const asked = (given: Partial<Asked> & { seen: string }) =>
  mountedPathOf({ isPage: true, ...given });

/** Where a browser that shows an address finds a file of the mount. */
const resolved = (address: string, up: string) =>
  new URL(`${up}@dashboard/x.js`, `http://host${address}`).pathname;

describe("the path of a request inside of a mount", () => {
  test.each([
    ["/", "/", "/", "/"],
    ["/tasks/x", "/tasks/x", "/tasks/x", "/"],
    ["/", "/ops", "/", "/ops/"],
    ["/", "/ops/", "/", "/ops/"],
    ["/tasks", "/ops/tasks", "/tasks", "/ops/"],
    ["/tasks/a%2Fb", "/ops/tasks/a%2Fb", "/tasks/a%2Fb", "/ops/"],
    ["/tasks/", "/ops/tasks/", "/tasks/", "/ops/"],
    ["/", "/a/b", "/", "/a/b/"],
    ["/nothing/here", "/a/b/nothing/here", "/nothing/here", "/a/b/"],
    ["/v1/tasks", "/api/v1/ops/v1/tasks", "/v1/tasks", "/api/v1/ops/"],
    ["/tasks", "/flows/tasks/tasks", "/tasks", "/flows/tasks/"],
  ])("of which the host has left %s of %s", (seen, original, inside, mount) => {
    const found = asked({ seen, original });
    expect(found.inside).toBe(inside);
    expect(resolved(original, found.up)).toBe(`${mount}@dashboard/x.js`);
  });

  test.each([
    ["/ops", 0, "/", "/ops/"],
    ["/ops/", 0, "/", "/ops/"],
    ["/ops/tasks", 1, "/tasks", "/ops/"],
    ["/ops/tasks/", 1, "/tasks", "/ops/"],
    ["/ops/tasks/a%2Fb", 2, "/tasks/a%2Fb", "/ops/"],
    ["/team/tasks/flows/x", 2, "/flows/x", "/team/tasks/"],
    ["/", 0, "/", "/"],
    ["/tasks", 1, "/tasks", "/"],
    ["/tasks", 7, "/tasks", "/"],
  ])("%s of which the host names %i folders below", (seen, segments, inside, mount) => {
    const found = asked({ seen, segments });
    expect(found.inside).toBe(inside);
    expect(resolved(seen, found.up)).toBe(`${mount}@dashboard/x.js`);
  });

  test.each([
    ["/ops/", "/", "/ops/"],
    ["/ops", "/", "/ops/"],
    ["/a/b/", "/", "/a/b/"],
    ["/a/b", "/", "/a/b/"],
    ["/a/b/tasks", "/tasks", "/a/b/"],
    ["/a/b/runs/tasks", "/runs/tasks", "/a/b/"],
    ["/a/b/v1/tasks/x/why", "/v1/tasks/x/why", "/a/b/"],
    ["/a/b/@dashboard/x.js", "/@dashboard/x.js", "/a/b/"],
    ["/flows/tasks", "/flows/tasks", "/"],
    ["/v1/limits/v1", "/v1/limits/v1", "/"],
    ["/a/tasks/", "/", "/a/tasks/"],
  ])("%s of which nothing was taken off is found by what is below", (seen, inside, mount) => {
    const found = asked({ seen });
    expect(found.inside).toBe(inside);
    expect(resolved(seen, found.up)).toBe(`${mount}@dashboard/x.js`);
  });

  test("is what it is where a program asks for something that isn't there", () => {
    expect(asked({ seen: "/wp-login.php", isPage: false }).inside).toBe("/wp-login.php");
    expect(asked({ seen: "/ops/", isPage: false }).inside).toBe("/");
  });

  test.each([
    ["/api/v1", "/api/v1/tasks", "/tasks"],
    ["/api/v1", "/api/v1", "/"],
    ["/tasks", "/tasks/tasks", "/tasks"],
    ["/ops", "/opsen/tasks", "/tasks"],
  ])("below %s, which the app has named: %s", (basePath, seen, inside) => {
    expect(asked({ seen, basePath }).inside).toBe(inside);
  });

  test("is known for every page of the dashboard", () => {
    const routes = readFileSync(new URL("../../dashboard/routes.tsx", import.meta.url), "utf8");
    const paths = [...routes.matchAll(/^ {2}path: "(\/.*)",$/gm)].map(([, path]) => path!);
    expect(paths.length).toBeGreaterThan(10);
    for (const path of paths) {
      const seen = `/a/b${path.replaceAll(/\$\w+/g, "x")}`;
      expect([seen, asked({ seen }).inside]).toEqual([seen, seen.slice("/a/b".length)]);
    }
  });
});
