import { natsImage, natsServers, serverConfig } from "./nats-config.ts";
import { dataFolder, type DeployFiles, type DeployPlan, natsVariable } from "./plan.ts";
import { commented, type Yaml, yamlDocument } from "./yaml.ts";

export type ComposeOptions = {
  /** The image of the pods. Undefined: it is built from the project. */
  image: string | undefined;
  /** The project's folder, as the folder of the file names it. */
  context: string;
};

const file = "compose.yaml";
const about = `Postgres, NATS servers and pods on one machine, made by \`flotilla deploy compose\`.
Passwords are in the file .env beside this one:

  echo "POSTGRES_PASSWORD=$(openssl rand -hex 24)" >> .env
`;
const hosts = Array.from({ length: natsServers }, (_, nth) => `n${nth + 1}`);

/** A Compose file that brings all that the pods need. */
export function composeFiles(plan: DeployPlan, options: ComposeOptions): DeployFiles {
  const { nats } = plan;
  const database = databaseOf(plan);
  const needed = {
    postgres: { condition: "service_healthy" },
    ...(nats && Object.fromEntries(hosts.map((host) => [host, { condition: "service_healthy" }]))),
    migrate: { condition: "service_completed_successfully" },
  };
  const services: Yaml = {
    postgres: postgres(database),
    ...(nats && Object.fromEntries(hosts.map((host) => [host, natsServer(host)]))),
    migrate: commented("The schema of the store, before pods of a new release start.", {
      ...imageOf(options),
      command: ["node_modules/.bin/flotilla", "migrate"],
      environment: { FLOTILLA_STORE: storeUrl(database) },
      ...ownEnvironment,
      depends_on: { postgres: { condition: "service_healthy" } },
      restart: "no",
    }),
    pods: {
      ...imageOf(options),
      command: ["node_modules/.bin/flotilla", "serve"],
      environment: environmentOf(plan, database),
      ...ownEnvironment,
      depends_on: needed,
      deploy: { replicas: plan.replicas },
      ports: [portOf(plan)],
      // Each pod has one of its own, which the next container in its place gets.
      volumes: [dataFolder],
      healthcheck: {
        test: ["CMD", "node", "-e", probeOf(plan)],
        interval: "5s",
        timeout: "7s",
        retries: 3,
        start_period: "60s",
      },
      stop_grace_period: commented(
        "shutdownMs + 2 × graceMs of the config.",
        `${plan.stopSeconds}s`,
      ),
      restart: "unless-stopped",
    },
  };
  const document: Yaml = {
    name: "flotilla",
    services,
    ...(nats && {
      configs: Object.fromEntries(
        hosts.map((name) => {
          const content = literal(serverConfig(nats, { name, hosts, folder: "/data" }));
          return [name, { content }];
        }),
      ),
    }),
    volumes: Object.fromEntries(["postgres", ...(nats ? hosts : [])].map((name) => [name, {}])),
  };
  return { [file]: yamlDocument(document, about + secretsOf(plan)) };
}

type Database = { readonly user: string; readonly name: string; readonly schema?: string };

/** The user, database and schema of the config's own Postgres, if it names one. */
function databaseOf({ store }: DeployPlan): Database {
  if (store.kind === "sqlite") return { user: "flotilla", name: "flotilla" };
  const { user, database: name, schema } = store;
  return { user, name, ...(schema !== undefined && { schema }) };
}

/** What is read from a file beside this one, such as keys of providers. */
const ownEnvironment = { env_file: [{ path: "pods.env", required: false }] };

function postgres({ user, name }: Database): Yaml {
  return {
    image: "postgres:18",
    environment: {
      POSTGRES_USER: literal(user),
      POSTGRES_DB: literal(name),
      POSTGRES_PASSWORD: needed("POSTGRES_PASSWORD"),
    },
    volumes: ["postgres:/var/lib/postgresql"],
    healthcheck: {
      test: ["CMD", "pg_isready", "-h", "127.0.0.1", "-U", literal(user), "-d", literal(name)],
      interval: "5s",
      timeout: "5s",
      retries: 10,
      start_period: "30s",
    },
    stop_grace_period: "1m",
    restart: "unless-stopped",
  };
}

function natsServer(host: string): Yaml {
  return {
    image: natsImage,
    hostname: host,
    command: ["-c", "/etc/nats/server.conf"],
    environment: { NATS_PASSWORD: needed("NATS_PASSWORD") },
    configs: [{ source: host, target: "/etc/nats/server.conf" }],
    volumes: [`${host}:/data`],
    healthcheck: {
      test: ["CMD", "wget", "-q", "-O", "/dev/null", healthOfNats],
      interval: "5s",
      timeout: "5s",
      retries: 10,
      start_period: "30s",
    },
    stop_grace_period: "1m",
    restart: "unless-stopped",
  };
}

/** Whether all of its streams are current changes from moment to moment, and is no reason to wait. */
const healthOfNats = "http://127.0.0.1:8222/healthz?js-server-only=true";

function imageOf({ image, context }: ComposeOptions): Record<string, Yaml> {
  if (image !== undefined) return { image: literal(image) };
  return { build: { context: literal(context), dockerfile_inline: literal(dockerfile) } };
}

/** A project with a lock file of npm, as it is deployed. */
const dockerfile = `FROM node:24-slim
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev
COPY . .
RUN mkdir -p ${dataFolder} && chown node ${dataFolder}
USER node
`;

function environmentOf(plan: DeployPlan, database: Database): Record<string, Yaml> {
  const { port, adminPort, knowsCallers, nats } = plan;
  return {
    FLOTILLA_STORE: storeUrl(database),
    ...(nats && { FLOTILLA_NATS: natsVariable(nats, hosts, needed("NATS_PASSWORD")) }),
    FLOTILLA_HOST: "0.0.0.0",
    FLOTILLA_PORT: String(port),
    FLOTILLA_ADMIN_PORT: String(adminPort),
    FLOTILLA_DATA_DIR: dataFolder,
    ...(!knowsCallers && { FLOTILLA_API_KEYS: needed("FLOTILLA_API_KEYS") }),
  };
}

function storeUrl({ user, name, schema }: Database): string {
  const [who, which] = [user, name].map((each) => literal(encodeURIComponent(each)));
  const query = schema === undefined ? "" : `?schema=${schema}`;
  return `postgres://${who}:${needed("POSTGRES_PASSWORD")}@postgres:5432/${which}${query}`;
}

function portOf({ port, replicas }: DeployPlan): Yaml {
  const last = Math.min(65_535, port + replicas - 1);
  const published = last === port ? String(port) : `${port}-${last}`;
  // Other machines get in through a proxy that ends TLS.
  return { target: port, published, host_ip: "127.0.0.1" };
}

function probeOf({ scheme, adminPort }: DeployPlan): string {
  const trust = scheme === "https" ? "process.env.NODE_TLS_REJECT_UNAUTHORIZED='0';" : "";
  const url = `${scheme}://127.0.0.1:${adminPort}/health/ready`;
  return `${trust}fetch('${url}').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))`;
}

function secretsOf({ nats, knowsCallers }: DeployPlan): string {
  const lines = [
    ...(nats ? ['  echo "NATS_PASSWORD=p$(openssl rand -hex 24)" >> .env'] : []),
    ...(knowsCallers ? [] : ['  echo "FLOTILLA_API_KEYS=$(openssl rand -hex 24)" >> .env']),
  ];
  return [
    ...lines,
    "",
    "What handlers read besides, such as keys of providers, is in pods.env.",
  ].join("\n");
}

/** A variable that Compose reads from .env, and refuses to start without. */
function needed(name: string): string {
  return `\${${name}:?set it in .env}`;
}

/** A text in which Compose sees no variables. */
function literal(text: string): string {
  return text.replaceAll("$", "$$$$");
}
