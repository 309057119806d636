import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { Ajv } from "ajv";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { checkNats, natsConfigIn } from "../src/bus/nats/config.ts";
import { createProgram } from "../src/cli/program.ts";
import { fleetSpecs } from "../src/server/api/fleet.schema.ts";
import { exitCodeOf } from "../src/cli/exit-codes.ts";
import { part } from "./parts.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const secrets = ["hunter2", "a-key-of-sixteen-characters", "a-secret-of-the-issuer-of-tokens-x"];

let folder: string;
const notices: string[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-deploy-"));
  notices.length = 0;
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs a command in this process, and gives what it has printed. */
async function printed(...words: string[]): Promise<string> {
  const written: string[] = [];
  const take = (to: string[]) => (text: unknown) => to.push(String(text)) > 0;
  vi.spyOn(process.stdout, "write").mockImplementation(take(written));
  vi.spyOn(process.stderr, "write").mockImplementation(take(notices));
  for (const name of ["FLOTILLA_STORE", "FLOTILLA_CONFIG"]) vi.stubEnv(name, undefined);
  try {
    await createProgram().parseAsync(["node", "flotilla", ...words]);
  } finally {
    vi.restoreAllMocks();
  }
  return written.join("");
}

async function refusal(...words: string[]): Promise<{ message: string; exitCode: number }> {
  try {
    await printed(...words);
  } catch (error) {
    return { message: (error as Error).message, exitCode: exitCodeOf(error) };
  }
  throw new Error(`\`${words.join(" ")}\` wasn't refused`);
}

function config(text: string): string[] {
  const path = join(folder, "flotilla.config.mjs");
  writeFileSync(path, `export default ${text};`);
  return ["--config", path];
}

/** A config that holds a secret wherever one can be. */
const full = () =>
  config(`{
    store: "postgres://app:hunter2@db.internal/shop?schema=jobs",
    shutdownMs: 45_500,
    graceMs: 2_500,
    sessions: { logs: 32 },
    server: {
      port: 3000,
      adminPort: 3001,
      apiKeys: ["a-key-of-sixteen-characters"],
      tokens: { secret: "a-secret-of-the-issuer-of-tokens-x" },
    },
  }`);

const image = "registry.example.com/app:1.4.2";
type Found = Record<string, any>;

describe("the Compose file", () => {
  const schema = JSON.parse(
    readFileSync(join(root, "node_modules/dclint/schemas/compose.schema.json"), "utf8"),
  ) as object;
  const validate = new Ajv({
    strict: false,
    validateFormats: false,
    validateSchema: false,
  }).compile(schema);
  const composed = (text: string): Found => {
    const found = parse(text) as Found;
    validate(found);
    expect(validate.errors ?? []).toEqual([]);
    return found;
  };

  test("is what Compose's schema allows, with and without a config", async () => {
    const usual = composed(await printed("deploy", "compose", ...config("{}")));
    expect(Object.keys(usual["services"])).toEqual([
      "postgres",
      "n1",
      "n2",
      "n3",
      "migrate",
      "pods",
    ]);
    const without = ["--nats", "none", "--image", image, "--replicas", "1"];
    const less = composed(await printed("deploy", "compose", ...without, ...config("{}")));
    expect(Object.keys(less["services"])).toEqual(["postgres", "migrate", "pods"]);
    expect(less["services"].pods).toMatchObject({ image, ports: [{ published: "8080" }] });
    expect(less["services"].pods.environment).not.toHaveProperty("FLOTILLA_NATS");
    // The schema is no yes to everything.
    expect(validate({ services: { pods: { imagge: image } } })).toBe(false);
  });

  test("has what the config says, and none of its secrets", async () => {
    const text = await printed("deploy", "compose", "--replicas", "5", ...full());
    for (const secret of secrets) expect(text).not.toContain(secret);
    const { services } = composed(text);
    expect(services.postgres.environment).toMatchObject({
      POSTGRES_USER: "app",
      POSTGRES_DB: "shop",
      POSTGRES_PASSWORD: "${POSTGRES_PASSWORD:?set it in .env}",
    });
    const { environment, deploy, ports, healthcheck, stop_grace_period: stop } = services.pods;
    expect(environment).toMatchObject({
      FLOTILLA_STORE: expect.stringMatching(
        /^postgres:\/\/app:\$\{POSTGRES_PASSWORD:.*\}@postgres:5432\/shop\?schema=jobs$/,
      ),
      FLOTILLA_PORT: "3000",
      FLOTILLA_ADMIN_PORT: "3001",
    });
    // The config has its own keys, which a variable would replace.
    expect(environment).not.toHaveProperty("FLOTILLA_API_KEYS");
    expect({ deploy, stop, port: ports[0] }).toMatchObject({
      deploy: { replicas: 5 },
      stop: "51s",
      port: { target: 3000, published: "3000-3004" },
    });
    expect(healthcheck.test.at(-1)).toContain("http://127.0.0.1:3001/health/ready");
    expect(services.migrate.command).toEqual(["node_modules/.bin/flotilla", "migrate"]);
  });

  test("configures NATS servers so that they start, and a pod finds them", async () => {
    const { configs, services } = composed(await printed("deploy", "compose", ...full()));
    const contents = ["n1", "n2", "n3"].map((name) => interpolated(configs[name].content));
    for (const each of contents) checkServerConfig(each);
    const content = contents[1];
    // Servers read the password themselves, and subjects of JetStream begin so.
    expect(content).toMatch(/password: \$NATS_PASSWORD$/m);
    expect(content).toContain('"$JS.API.INFO"');
    expect(content).toMatch(/^server_name: n2$/m);
    expect(content).toMatch(/sync_interval: always/);
    expect(content).toMatch(/^max_payload: 8MB$/m);
    expect(content).toMatch(/max_file_store: 16GB/);
    expect(content).toContain("nats-route://n3:6222");
    const variable = interpolated(services.pods.environment.FLOTILLA_NATS);
    expect(checkNats(natsConfigIn(variable)!)).toMatchObject({
      servers: ["n1:4222", "n2:4222", "n3:4222"],
      credentials: { user: "flotilla", password: "pw" },
      use: "all",
      monitors: ["http://n1:8222/", "http://n2:8222/", "http://n3:8222/"],
    });
  });

  test("leaves servers that need credentials to the config", async () => {
    const known = config(
      `{ nats: { servers: "nats://n.internal", credentials: { token: "hunter2" }, use: "bus" } }`,
    );
    const text = await printed("deploy", "compose", ...known);
    expect(text).not.toContain("hunter2");
    expect(Object.keys(composed(text)["services"])).toEqual(["postgres", "migrate", "pods"]);
    expect(await refusal("deploy", "compose", "--nats", "own", ...known)).toMatchObject({
      message: expect.stringContaining("nats.credentials of the config is for servers"),
      exitCode: 2,
    });
  });
});

/** What Compose makes of a text: variables are replaced, and `$$` is a dollar sign. */
function interpolated(text: string): string {
  const variables: Record<string, string> = { NATS_PASSWORD: "pw" };
  return text.replaceAll(/\$(?:\$|\{(\w+):\?[^}]*\}|(\w+))/g, (match, needed, named) =>
    match === "$$" ? "$" : (variables[(needed ?? named) as string] ?? ""),
  );
}

/** Has a server read its config, without starting it. */
function checkServerConfig(text: string): void {
  const path = join(folder, "server.conf");
  writeFileSync(path, text.replace("store_dir: /data", `store_dir: ${JSON.stringify(folder)}`));
  const env = { ...process.env, NATS_PASSWORD: "p0", POD_NAME: "nats-0" };
  const { status, stderr } = spawnSync(part("nats"), ["-t", "-c", path], { env, encoding: "utf8" });
  expect({ status, stderr }).toMatchObject({ status: 0 });
}

describe("manifests of Kubernetes", () => {
  const manifests = async (...words: string[]): Promise<{ text: string; all: Found[] }> => {
    const text = await printed("deploy", "kubernetes", "--image", image, ...words);
    return { text, all: parseAllDocuments(text).map((each) => each.toJS() as Found) };
  };
  const models: Record<string, string> = {
    ConfigMap: "v1",
    Service: "v1",
    Job: "batch/v1",
    Deployment: "apps/v1",
    StatefulSet: "apps/v1",
    PodDisruptionBudget: "policy/v1",
    NetworkPolicy: "networking.k8s.io/v1",
  };

  /** By the models' own checks of values, and by the compiler, which knows every name. */
  const checkModels = async (all: readonly Found[]) => {
    for (const { kind, apiVersion } of all) expect(models).toHaveProperty(kind, apiVersion);
    for (const each of all) {
      const path = `kubernetes-models/${models[each["kind"]]}/${each["kind"]}`;
      const { [each["kind"]]: Model } = (await import(path)) as Record<
        string,
        new (data: Found) => { validate(): void }
      >;
      new Model!(each).validate();
    }
    return compiled(all);
  };
  const compiled = (all: readonly Found[]): string => {
    const within = join(root, "node_modules/.cache");
    mkdirSync(within, { recursive: true });
    const place = mkdtempSync(join(within, "manifests-"));
    const lines = all.map(({ kind, ...rest }, nth) => {
      const type = `import("kubernetes-models/${models[kind as string]}/${kind}").I${kind}`;
      return `export const manifest${nth}: ${type} = ${JSON.stringify({ kind, ...rest }, null, 1)};`;
    });
    try {
      writeFileSync(join(place, "manifests.ts"), lines.join("\n"));
      const options = {
        module: "nodenext",
        strict: true,
        noEmit: true,
        skipLibCheck: true,
        types: [],
      };
      const settings = { compilerOptions: options, files: ["manifests.ts"] };
      writeFileSync(join(place, "tsconfig.json"), JSON.stringify(settings));
      const tsc = join(root, "node_modules/typescript/bin/tsc");
      return spawnSync(process.execPath, [tsc, "-p", place], { encoding: "utf8" }).stdout;
    } finally {
      rmSync(place, { recursive: true, force: true });
    }
  };
  const kinds = (all: readonly Found[]) => all.map(({ kind }) => kind as string);
  const only = (all: readonly Found[], kind: string): Found =>
    all.find((each) => each["kind"] === kind)!;

  test("fit the models, with servers of their own", async () => {
    const { text, all } = await manifests("--nats", "own", "--namespace", "prod", ...full());
    for (const secret of secrets) expect(text).not.toContain(secret);
    expect(await checkModels(all)).toBe("");
    expect(kinds(all)).toEqual([
      "ConfigMap",
      "Service",
      "PodDisruptionBudget",
      "NetworkPolicy",
      "StatefulSet",
      "Job",
      "Service",
      "PodDisruptionBudget",
      "Deployment",
    ]);
    expect(new Set(all.map(({ metadata }) => metadata.namespace))).toEqual(new Set(["prod"]));
    checkServerConfig(only(all, "ConfigMap")["data"]["server.conf"]);
    const { containers } = only(all, "StatefulSet")["spec"].template.spec;
    expect(containers[0].env[1].valueFrom.secretKeyRef).toEqual({
      name: "flotilla",
      key: "NATS_PASSWORD",
    });
    // A name that no model has is seen by the compiler.
    const wrong = structuredClone(only(all, "Deployment"));
    wrong["spec"].template.spec.terminationGraceSeconds = 1;
    expect(compiled([wrong])).toContain("terminationGraceSeconds");
  });

  test("probe the routes that a server has, and let a pod stop in its own time", async () => {
    const { all } = await manifests("--replicas", "4", ...full());
    const { replicas, template } = only(all, "Deployment")["spec"];
    const { containers, terminationGracePeriodSeconds: graceSeconds } = template.spec;
    const [pod] = containers;
    // shutdownMs + 2 × graceMs, 45.5 s + 2 × 2.5 s.
    expect({ replicas, graceSeconds }).toEqual({ replicas: 4, graceSeconds: 51 });
    expect(pod.command).toEqual(["node_modules/.bin/flotilla", "serve"]);
    expect(pod.ports).toEqual([
      { name: "http", containerPort: 3000 },
      { name: "admin", containerPort: 3001 },
    ]);
    const routes = Object.values(fleetSpecs).map(({ path }) => path);
    for (const probe of ["startupProbe", "livenessProbe", "readinessProbe"]) {
      expect(pod[probe].httpGet.port).toBe("admin");
      expect(routes).toContain(pod[probe].httpGet.path);
    }
    expect(pod.env.filter(({ value }: Found) => value === undefined)).toEqual([
      {
        name: "FLOTILLA_STORE",
        valueFrom: { secretKeyRef: { name: "flotilla", key: "FLOTILLA_STORE" } },
      },
    ]);
    expect(only(all, "Job")["spec"].template.spec.containers[0].command).toEqual([
      "node_modules/.bin/flotilla",
      "migrate",
    ]);
    expect(only(all, "PodDisruptionBudget")["spec"].maxUnavailable).toBe(1);
    const next = await printed("deploy", "kubernetes", "--image", "app:2", ...full());
    const names = [all, parseAllDocuments(next).map((each) => each.toJS() as Found)].map(
      (each) => only(each, "Job")["metadata"].name as string,
    );
    // A job can't be changed, so that the next image needs another.
    expect(names[0]).not.toBe(names[1]);
  });

  test("mount the files that the config names, and ask by HTTPS where the server speaks it", async () => {
    const { text, all } = await manifests(
      ...config(`{
        store: "postgres://db.internal/app",
        nats: {
          servers: "nats://n.internal",
          credentials: { file: "/etc/flotilla/nats.creds" },
          tls: { caFile: "/etc/flotilla/ca.pem" },
        },
        server: { keys: "store", tls: { key: "/etc/tls/key.pem", cert: "/etc/tls/cert.pem" } },
      }`),
    );
    expect(await checkModels(all)).toBe("");
    expect(kinds(all)).toEqual(["Job", "Service", "PodDisruptionBudget", "Deployment"]);
    const { containers, volumes } = only(all, "Deployment")["spec"].template.spec;
    expect(containers[0].volumeMounts.slice(2)).toEqual([
      { name: "files-1", mountPath: "/etc/flotilla", readOnly: true },
      { name: "files-2", mountPath: "/etc/tls", readOnly: true },
    ]);
    expect(volumes.at(-1).secret.items).toEqual([
      { key: "key.pem", path: "key.pem" },
      { key: "cert.pem", path: "cert.pem" },
    ]);
    expect(containers[0].readinessProbe.httpGet.scheme).toBe("HTTPS");
    expect(text).toContain("--from-file=nats.creds=/etc/flotilla/nats.creds");
  });

  test("say that a SQLite file isn't shared, and refuse names that Kubernetes would", async () => {
    await manifests(...config("{}"));
    expect(notices.join("")).toContain("FLOTILLA_STORE of the Secret has to name a Postgres");
    const wrong = ["deploy", "kubernetes", "--image", image, "--namespace", "Prod_1"];
    expect(await refusal(...wrong)).toMatchObject({ exitCode: 2 });
    const image2 = ["deploy", "kubernetes", "--image", "app\nkind: Pod"];
    expect(await refusal(...image2)).toMatchObject({ exitCode: 2 });
  });
});

describe.runIf(process.platform === "linux")("the unit of systemd", () => {
  /** systemd wants the programs of a unit to be there. */
  const verified = async (where: string, ...words: string[]): Promise<string> => {
    const within = join(where, "node_modules/flotilla/bin");
    mkdirSync(within, { recursive: true });
    writeFileSync(join(within, "flotilla.js"), "");
    const out = join(folder, "units");
    const flags = ["--folder", where, "--out", out, "--force"];
    await printed("deploy", "systemd", ...flags, ...words);
    const path = join(out, "flotilla.service");
    const run = spawnSync(part("systemd"), ["verify", "--man=no", path], { encoding: "utf8" });
    expect(run.stderr.split("\n").filter((line) => line.includes("flotilla"))).toEqual([]);
    return readFileSync(path, "utf8");
  };

  test("is one that systemd takes, with the config's own times", async () => {
    const text = await verified(folder, ...full());
    for (const secret of secrets) expect(text).not.toContain(secret);
    const lines = text.split("\n");
    expect(lines).toContain("TimeoutStopSec=51");
    expect(lines).toContain("Environment=FLOTILLA_PORT=3000");
    expect(lines).toContain("EnvironmentFile=/etc/flotilla/flotilla.env");
    expect(lines.find((line) => line.startsWith("ExecStart="))).toBe(
      `ExecStart=${process.execPath} ${folder}/node_modules/flotilla/bin/flotilla.js serve`,
    );
  });

  test("is one that systemd takes for folders with any name, and for a SQLite file", async () => {
    const text = await verified(join(folder, 'a b%c$d"e'), ...config(`{ store: "sqlite:my.db" }`));
    expect(text).toContain("Environment=FLOTILLA_STORE=sqlite:/var/lib/flotilla/my.db");
    const wrong = join(folder, "wrong.service");
    writeFileSync(wrong, text.replace("Restart=always", "Restart=perhaps"));
    const run = spawnSync(part("systemd"), ["verify", "--man=no", wrong], { encoding: "utf8" });
    // What is checked here is a unit that systemd reads, and not a missing program.
    expect(run.stderr).toContain("perhaps");
  });
});

describe("files that are written", () => {
  test("don't replace others unless they are told to", async () => {
    const out = join(folder, "deploy");
    const words = ["deploy", "kubernetes", "--image", image, "--out", out, ...full()];
    const written = JSON.parse(await printed(...words, "--json")) as { written: string[] };
    expect(written).toEqual({
      written: ["migrate.yaml", "pods.yaml"].map((each) => join(out, each)),
    });
    const before = readFileSync(join(out, "pods.yaml"), "utf8");
    // The same files again are no change.
    await printed(...words);
    writeFileSync(join(out, "pods.yaml"), "mine");
    rmSync(join(out, "migrate.yaml"));
    expect(await refusal(...words)).toMatchObject({
      message: expect.stringMatching(/pods\.yaml is there and would change: .*--force/),
      exitCode: 4,
    });
    expect(readFileSync(join(out, "pods.yaml"), "utf8")).toBe("mine");
    expect(existsSync(join(out, "migrate.yaml"))).toBe(false);
    await printed(...words, "--force");
    expect(readFileSync(join(out, "pods.yaml"), "utf8")).toBe(before);
  });

  test("are printed as JSON with their names", async () => {
    const json = await printed("deploy", "compose", "--json", ...config("{}"));
    const { files } = JSON.parse(json) as { files: { name: string; text: string }[] };
    expect(files.map(({ name }) => name)).toEqual(["compose.yaml"]);
    expect(files[0]!.text).toBe(await printed("deploy", "compose", ...config("{}")));
  });
});
