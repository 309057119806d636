import process from "node:process";
import type { Command } from "commander";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { startTestServer } from "../server/contract/test-server.ts";
import { createProgram } from "./program.ts";

const keys = {
  viewer: "a-key-of-a-viewer-of-all",
  operator: "a-key-of-an-operator-of-all",
  admin: "a-key-of-an-administrator",
  "tenant's operator": "a-key-of-a-tenants-operator",
};
type CallerName = "none" | keyof typeof keys;
const callerNames = ["none", ...Object.keys(keys)] as CallerName[];

const allowed = {
  read: ["viewer", "operator", "admin", "tenant's operator"],
  "read of all": ["viewer", "operator", "admin"],
  operate: ["operator", "admin", "tenant's operator"],
  "operate all": ["operator", "admin"],
  admin: ["admin"],
} as const satisfies Record<string, readonly CallerName[]>;

/** Every command that goes through a server, with arguments, and what lets callers in. */
const commands: Record<string, [keyof typeof allowed, ...string[]]> = {
  enqueue: ["admin", "mail"],
  "tasks list": ["read"],
  "tasks show": ["read", "none"],
  "tasks cancel": ["operate", "none"],
  "tasks retry": ["operate", "none"],
  "tasks resume": ["operate", "none"],
  "tasks signal": ["operate", "none", "approve"],
  why: ["read", "none"],
  stats: ["read of all"],
  series: ["read of all", "task"],
  changes: ["read"],
  "runs list": ["read"],
  "runs show": ["read", "none"],
  "runs start": ["admin", "order"],
  "runs cancel": ["operate", "none"],
  "runs signal": ["operate", "none", "approve"],
  "runs resume": ["operate", "none"],
  flows: ["read of all"],
  "sessions list": ["read"],
  "sessions show": ["read", "none"],
  "sessions export": ["read", "none"],
  "sessions stop": ["operate", "none"],
  "sessions signal": ["operate", "none", "approve", "--author", "ada"],
  "sessions wake": ["admin", "none", "tea", "--author", "ada", "--after", "3600000"],
  "sessions cancel-wake": ["operate", "none", "tea"],
  "sessions archive": ["operate", "none"],
  "sessions unarchive": ["operate", "none"],
  "sessions remove": ["admin", "none", "--yes"],
  // A name that no agent has, so that an administrator's chat ends before it reads the terminal.
  chat: ["admin", "--agent", "?"],
  "agents list": ["read"],
  "agents show": ["read", "none"],
  "agents set": ["admin", "helper", '{"url":"https://agent.example/chat"}'],
  "agents remove": ["admin", "none"],
  approvals: ["read"],
  audit: ["admin"],
  quotas: ["read"],
  "keys list": ["admin"],
  "keys create": ["admin", "ci", "--role", "viewer"],
  "keys revoke": ["admin", "none"],
  "keys rotate": ["admin", "none"],
  "tokens list": ["admin"],
  "tokens revoke": ["admin", "--user", "ada"],
  "sign-ins list": ["read"],
  "sign-ins end": ["read", "none"],
  "schedules list": ["read of all"],
  "schedules show": ["read of all", "none"],
  "schedules firings": ["read of all", "none"],
  "schedules add": ["admin", "nightly", "mail", "--every-ms", "86400000"],
  "schedules remove": ["admin", "none"],
  "schedules pause": ["operate all", "none"],
  "schedules resume": ["operate all", "none"],
  "schedules fire": ["operate all", "none"],
  "dlq list": ["read"],
  "dlq show": ["read", "none"],
  "dlq resolve": ["operate all", "g2-79ef601d010c6cb2"],
  "dlq ignore": ["operate all", "g2-79ef601d010c6cb2"],
  "dlq reopen": ["operate all", "g2-79ef601d010c6cb2"],
  "dlq discard": ["admin", "--all", "--yes"],
  "dlq redrive": ["operate", "--all", "--no-wait"],
  "dlq redrives": ["read"],
  "dlq follow": ["read", "none"],
  "dlq cancel": ["operate", "none"],
  "bulk cancel": ["operate", "--name", "none", "--yes", "--no-wait"],
  "bulk retry": ["operate", "--name", "none", "--yes", "--no-wait"],
  "bulk delete": ["admin", "--name", "none", "--yes", "--no-wait"],
  "bulk signal": ["operate", "approve", "--name", "none", "--yes", "--no-wait"],
  "bulk resume": ["operate", "--name", "none", "--yes", "--no-wait"],
  "bulk list": ["read"],
  "bulk follow": ["read", "none"],
  "bulk stop": ["operate", "none"],
  "pods list": ["read of all"],
  "pods drain": ["operate all", "none"],
  "pods undrain": ["operate all", "none"],
  pause: ["operate all", "mail"],
  resume: ["operate all", "mail"],
  "limits list": ["read of all"],
  "limits set": ["admin", "tenant/acme", "5"],
  "limits unset": ["admin", "tenant/acme"],
  "throttles list": ["read of all"],
  "throttles show": ["read of all", "none"],
  "throttles holders": ["read of all", "none"],
  "throttles events": ["read of all", "none"],
  "throttles pin": ["admin", "none", "5"],
  "throttles unpin": ["admin", "none"],
};

let server: Awaited<ReturnType<typeof startTestServer>>;
beforeAll(async () => {
  server = await startTestServer({
    server: {
      apiKeys: [
        { key: keys.viewer, role: "viewer" },
        { key: keys.operator, role: "operator" },
        { key: keys.admin, role: "admin" },
        { key: keys["tenant's operator"], role: "operator", tenant: "acme" },
      ],
    },
  });
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(() => {
  for (const stream of [process.stdout, process.stderr])
    vi.spyOn(stream, "write").mockReturnValue(true);
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

/** Runs a command in this process, and gives its error. */
async function errorOf(caller: CallerName, words: readonly string[]): Promise<unknown> {
  vi.stubEnv("FLOTILLA_API_KEY", caller === "none" ? undefined : keys[caller]);
  try {
    await createProgram().parseAsync(["node", "flotilla", ...words, "--url", server.url]);
    return undefined;
  } catch (error) {
    return error;
  }
}

function through(command: Command, words: readonly string[] = []): string[] {
  if (command.commands.length > 0)
    return command.commands.flatMap((each) => through(each, [...words, each.name()]));
  return command.options.some(({ long }) => long === "--url") ? [words.join(" ")] : [];
}

describe("the table of commands and callers, through a server", () => {
  test("has every command that goes through one", () => {
    expect(Object.keys(commands).toSorted()).toEqual(through(createProgram()).toSorted());
  });

  test.each(Object.entries(commands))(
    "holds for the command %s",
    async (words, [level, ...given]) => {
      const found: Record<string, string> = {};
      const wanted: Record<string, string> = {};
      for (const caller of callerNames) {
        const error = await errorOf(caller, [...words.split(" "), ...given]);
        const code = error instanceof FlotillaError ? error.code : "";
        const isRefused = code === "unauthorized" || code === "forbidden";
        found[caller] = isRefused ? code : "let in";
        const isAllowed = (allowed[level] as readonly CallerName[]).includes(caller);
        wanted[caller] = isAllowed ? "let in" : caller === "none" ? "unauthorized" : "forbidden";
      }
      expect(found).toEqual(wanted);
    },
  );

  test("a refusal says which role is needed", async () => {
    const messageOf = async (caller: CallerName, ...words: string[]) =>
      ((await errorOf(caller, words)) as Error).message;
    expect(await messageOf("viewer", "pause", "mail")).toBe(
      "this key may not do that: it needs `fleet:operate`, which the role `operator` has",
    );
    expect(await messageOf("operator", "limits", "set", "tenant/acme", "5")).toBe(
      "this key may not do that: it needs `admin`, which the role `admin` has",
    );
    expect(await messageOf("viewer", "sessions", "stop", "none")).toBe(
      "this key may not do that: it needs `sessions:write`, or the role `operator`",
    );
    expect(await messageOf("tenant's operator", "pause", "mail")).toBe(
      "this is about all tenants, and this key is of one: it needs the same role without a tenant",
    );
  });

  test("a tenant's operator is shown a task that waits, without what it may not see", async () => {
    const options = { tenant: "acme", delayMs: 60_000 };
    const { taskId } = await server.flotilla.enqueue("mail", null, options);
    await server.flotilla.tasks.pause("mail", { reason: "of all tenants" });
    const written = vi.mocked(process.stdout.write);
    expect(await errorOf("tenant's operator", ["tasks", "show", taskId])).toBeUndefined();
    const shown = written.mock.calls.map(([text]) => String(text)).join("");
    expect(shown).toContain('"mail" is paused');
    expect(shown).not.toContain("of all tenants");
    await server.flotilla.tasks.resume("mail");
  });
});
