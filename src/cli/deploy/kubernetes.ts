import { hash } from "node:crypto";
import { basename } from "node:path";
import { natsManifests } from "./kubernetes-nats.ts";
import {
  containerSecurity,
  fromSecret,
  type Manifest,
  objectMeta,
  natsHosts,
  podSecurity,
} from "./manifest.ts";
import { byFolder, dataFolder, type DeployFiles, type DeployPlan, natsVariable } from "./plan.ts";
import { commented, type Yaml, yamlDocument } from "./yaml.ts";

export type KubernetesOptions = {
  image: string;
  /** The namespace of Kubernetes. Undefined: the one that `kubectl` uses. */
  namespace: string | undefined;
};

/** The Secret of a deployment, and that with the files which its config names. */
const secret = "flotilla";
const fileSecret = "flotilla-files";
const program = "node_modules/.bin/flotilla";

/** Manifests in the order in which they are applied: servers, migration, pods. */
export function kubernetesFiles(plan: DeployPlan, options: KubernetesOptions): DeployFiles {
  const { nats } = plan;
  return {
    ...(nats && { "nats.yaml": documents(natsManifests(nats, { ...options, secret }), aboutNats) }),
    "migrate.yaml": documents([migration(plan, options)], aboutMigration),
    "pods.yaml": documents(podManifests(plan, options), aboutPods(plan, options)),
  };
}

const aboutNats = `Three NATS servers that keep streams, made by \`flotilla deploy kubernetes\`. If there are
some already, name them in \`nats\` of the config and leave this file out.`;
const aboutMigration = `The schema of the store, made by \`flotilla deploy kubernetes\`. Apply it before pods of a
new release, and wait: kubectl wait --for=condition=complete --timeout=1h -f migrate.yaml`;

function aboutPods(plan: DeployPlan, { namespace }: KubernetesOptions): string {
  const where = namespace === undefined ? "" : ` --namespace ${namespace}`;
  const folders = [...byFolder(plan.files).keys()];
  const values = [
    "--from-literal=FLOTILLA_STORE=postgres://user:password@host/database",
    ...(plan.knowsCallers ? [] : ['--from-literal=FLOTILLA_API_KEYS="$(openssl rand -hex 24)"']),
    ...(plan.nats ? ['--from-literal=NATS_PASSWORD="p$(openssl rand -hex 24)"'] : []),
  ];
  const lines = [
    "The pods, made by `flotilla deploy kubernetes`. Secrets are named here, and made by you:",
    "",
    `  kubectl create secret generic ${secret}${where} \\`,
    ...values.map((value, nth) => `    ${value}${nth < values.length - 1 ? " \\" : ""}`),
    ...(folders.length === 0
      ? []
      : [
          `  kubectl create secret generic ${fileSecret}${where} \\`,
          ...plan.files.map(
            (file, nth) =>
              `    --from-file=${basename(file)}=${file}${nth < plan.files.length - 1 ? " \\" : ""}`,
          ),
        ]),
    "",
    "What handlers read besides, such as keys of providers, may be in a Secret flotilla-env.",
  ];
  return lines.join("\n");
}

function documents(manifests: readonly Manifest[], about: string): string {
  return manifests.map((each, nth) => yamlDocument(each, nth === 0 ? about : "")).join("---\n");
}

const podLabels = {
  "app.kubernetes.io/name": "flotilla",
  "app.kubernetes.io/component": "pods",
} as const;

function podManifests(plan: DeployPlan, options: KubernetesOptions): Manifest[] {
  const { port, replicas, stopSeconds } = plan;
  const named = (name: string) => objectMeta(name, options.namespace, podLabels);
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: named("flotilla"),
      spec: {
        selector: podLabels,
        ports: [{ name: "http", port: plan.scheme === "https" ? 443 : 80, targetPort: "http" }],
      },
    },
    {
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      metadata: named("flotilla"),
      spec: { maxUnavailable: 1, selector: { matchLabels: podLabels } },
    },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: named("flotilla"),
      spec: {
        replicas,
        // A new pod takes work before an old one hands its own on.
        strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
        selector: { matchLabels: podLabels },
        template: {
          metadata: { labels: podLabels },
          spec: {
            ...podSecurity,
            terminationGracePeriodSeconds: commented(
              "shutdownMs + 2 × graceMs of the config.",
              stopSeconds,
            ),
            topologySpreadConstraints: [
              {
                maxSkew: 1,
                topologyKey: "kubernetes.io/hostname",
                whenUnsatisfiable: "ScheduleAnyway",
                labelSelector: { matchLabels: podLabels },
              },
            ],
            containers: [
              {
                name: "pod",
                image: options.image,
                command: [program, "serve"],
                env: environmentOf(plan),
                ...containerOf(plan),
                ports: [
                  { name: "http", containerPort: port },
                  { name: "admin", containerPort: plan.adminPort },
                ],
                ...probesOf(plan),
                resources: commented("Measure your own handlers, and set what they need.", {
                  requests: { cpu: "250m", memory: "512Mi" },
                  limits: { memory: "1Gi" },
                }),
              },
            ],
            volumes: volumesOf(plan),
          },
        },
      },
    },
  ];
}

function migration(plan: DeployPlan, options: KubernetesOptions): Manifest {
  const labels = { ...podLabels, "app.kubernetes.io/component": "migration" };
  // A job can't be changed, so each image has one of its own.
  const name = `flotilla-migrate-${hash("sha256", options.image, "hex").slice(0, 10)}`;
  return {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: objectMeta(name, options.namespace, labels),
    spec: {
      backoffLimit: 6,
      activeDeadlineSeconds: 3_600,
      ttlSecondsAfterFinished: 86_400,
      template: {
        metadata: { labels },
        spec: {
          ...podSecurity,
          restartPolicy: "Never",
          containers: [
            {
              name: "migrate",
              image: options.image,
              command: [program, "migrate"],
              env: [fromSecret("FLOTILLA_STORE", secret)],
              ...containerOf(plan),
            },
          ],
          volumes: volumesOf(plan),
        },
      },
    },
  };
}

function containerOf(plan: DeployPlan): Record<string, Yaml> {
  return {
    envFrom: [{ secretRef: { name: "flotilla-env", optional: true } }],
    securityContext: containerSecurity,
    volumeMounts: [
      { name: "data", mountPath: dataFolder },
      { name: "tmp", mountPath: "/tmp" },
      ...[...byFolder(plan.files).keys()].map((mountPath, nth) => ({
        name: `files-${nth + 1}`,
        mountPath,
        readOnly: true,
      })),
    ],
  };
}

function environmentOf(plan: DeployPlan): Yaml[] {
  const { port, adminPort, knowsCallers, nats } = plan;
  const known = {
    FLOTILLA_HOST: "0.0.0.0",
    FLOTILLA_PORT: String(port),
    FLOTILLA_ADMIN_PORT: String(adminPort),
    FLOTILLA_DATA_DIR: dataFolder,
  };
  return [
    fromSecret("FLOTILLA_STORE", secret),
    ...(knowsCallers ? [] : [fromSecret("FLOTILLA_API_KEYS", secret)]),
    ...(nats
      ? [
          fromSecret("NATS_PASSWORD", secret),
          // Kubernetes puts the password in its place, which has to stand before.
          { name: "FLOTILLA_NATS", value: natsVariable(nats, natsHosts, "$(NATS_PASSWORD)") },
        ]
      : []),
    ...Object.entries(known).map(([name, value]) => ({ name, value })),
  ];
}

function probesOf({ scheme }: DeployPlan): Record<string, Yaml> {
  const at = (path: string) => ({
    httpGet: { path, port: "admin", ...(scheme === "https" && { scheme: "HTTPS" }) },
  });
  return {
    startupProbe: { ...at("/health/live"), periodSeconds: 2, failureThreshold: 60 },
    // A pod whose event loop is blocked ends itself, and sooner than this.
    livenessProbe: {
      ...at("/health/live"),
      periodSeconds: 10,
      timeoutSeconds: 5,
      failureThreshold: 9,
    },
    // It writes to the store, and takes 5 seconds at most.
    readinessProbe: {
      ...at("/health/ready"),
      periodSeconds: 5,
      timeoutSeconds: 6,
      failureThreshold: 2,
    },
  };
}

function volumesOf({ files }: DeployPlan): Yaml {
  return [
    { name: "data", emptyDir: {} },
    { name: "tmp", emptyDir: {} },
    ...[...byFolder(files)].map(([, within], nth) => ({
      name: `files-${nth + 1}`,
      secret: {
        secretName: fileSecret,
        items: within.map((file) => ({ key: basename(file), path: basename(file) })),
      },
    })),
  ];
}
