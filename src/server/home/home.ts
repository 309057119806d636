import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { FlotillaError } from "../../base/errors.ts";
import { packageFile } from "../../base/package-files.ts";
import { verbs } from "../../protocol/verbs.ts";
import { version } from "../../runtime/version.ts";
import { bodyOf, refusalIn } from "../admission/admission.ts";
import { fleetSpecs } from "../api/fleet.schema.ts";
import { callerOf } from "../auth/authenticate.ts";
import { type Caller, may, onlyTenant } from "../auth/caller.ts";
import { route, type Route } from "../route.ts";
import { type Dashboard, wantsPage } from "./dashboard.ts";
import { createOverview, type OverviewParts } from "./overview.ts";
import { type Home, homePage, pageHeaders } from "./page.ts";

type HomeRoutes = OverviewParts & {
  /** The paths of pages, such as `/chat`. */
  pagePaths: readonly string[];
  /** Where browsers sign in, if callers need credentials. */
  signInPath?: string | undefined;
  /** What browsers get. Without it, a plain page. */
  dashboard?: Dashboard | undefined;
  /** A host app has the routes that aren't about the fleet. */
  isMounted?: boolean;
};

const first = "quickstart.md";

/** The route `/`: what this server is. Programs get JSON, browsers the dashboard or a plain page. */
export function homeRoutes({
  pagePaths,
  signInPath,
  dashboard,
  isMounted = false,
  ...parts
}: HomeRoutes): Route[] {
  const overview = createOverview(parts);
  const open = {
    ...(signInPath !== undefined && { signIn: signInPath }),
    ...Object.fromEntries(pagePaths.map((path) => [path.slice(1), `${path}/`])),
    ...(!isMounted && { live: "/health/live", ready: "/health/ready" }),
  };
  const links = {
    ...open,
    ...(!isMounted && { metrics: "/metrics" }),
    api: "/v1/openapi.json",
  };
  const found = findDocs();
  const docs = Object.fromEntries([...found.keys()].map((page) => [page, `/v1/docs/${page}`]));

  const homeFor = async (caller: Caller | undefined, refusal?: FlotillaError): Promise<Home> => {
    const name = "flotilla";
    if (!caller) return { name, links: open, ...(refusal && { advice: refusal.message }) };
    const known = knownCaller(caller);
    if (!may(caller, "fleet:read") || onlyTenant(caller) !== undefined)
      return { name, links: open, caller: known };
    const result = await overview();
    const overviewFields = "trouble" in result ? result : { overview: result };
    return {
      name,
      caller: known,
      version: version(),
      store: parts.flotilla.storeKind,
      links,
      docs,
      ...overviewFields,
    };
  };

  return [
    {
      spec: fleetSpecs.home,
      async handle(c, serializer) {
        const refusal = refusalIn(c);
        // A program that sends a wrong key needs the error, not the public answer.
        if (refusal && c.req.header("authorization") !== undefined) throw refusal;
        const isPage = wantsPage(c);
        if (isPage && dashboard) return dashboard.page(c);
        const caller = callerOf(c);
        const schema = fleetSpecs.home.answers[200];
        const home = serializer.shown(schema, await homeFor(caller, refusal), { caller }) as Home;
        const bytes = Buffer.from(
          isPage ? await homePage(home, new URL(c.req.url).origin) : JSON.stringify(home),
        );
        const headers = isPage ? pageHeaders : { "Content-Type": "application/json" };
        return c.body(bodyOf(c, bytes), 200, { ...headers, Vary: "Accept" });
      },
    },
    route(fleetSpecs.docs).to(async ({ params: { page } }) => {
      const file = found.get(page);
      if (!file) throw new FlotillaError("not_found", `there is no page ${page.slice(0, 80)}`);
      // As plain text, because browsers download Markdown instead of showing it.
      const headers = { "Content-Type": "text/plain; charset=utf-8" };
      return { status: 200, body: await readFile(file, "utf8"), headers };
    }),
  ];
}

/** What the caller may know of itself: a page hides the acts that its role doesn't allow. */
function knownCaller(caller: Caller): NonNullable<Home["caller"]> {
  const { kind, role, user, keyName } = caller;
  const tenant = onlyTenant(caller);
  return {
    kind,
    verbs: verbs.filter((verb) => may(caller, verb)),
    ...(role !== undefined && { role }),
    ...(tenant !== undefined && { tenant }),
    ...((user ?? keyName) !== undefined && { name: user ?? keyName }),
  };
}

/** The docs in the package, by file name; none where a bundler left them out. */
export function findDocs(folder = packageFile("docs/")): ReadonlyMap<string, URL> {
  const names = namesIn(folder).filter((name) => name.endsWith(".md"));
  const ordered = names.toSorted(
    (a, b) => Number(b === first) - Number(a === first) || (a < b ? -1 : 1),
  );
  return new Map(ordered.map((name) => [name, new URL(name, folder)]));
}

function namesIn(folder: URL): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
