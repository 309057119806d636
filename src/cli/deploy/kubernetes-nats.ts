import {
  containerSecurity,
  fromSecret,
  type Manifest,
  objectMeta,
  natsHosts,
  podSecurity,
} from "./manifest.ts";
import { natsImage, natsServers, serverConfig } from "./nats-config.ts";
import type { NatsPlan } from "./plan.ts";
import { commented, type Yaml } from "./yaml.ts";

const labels = {
  "app.kubernetes.io/name": "flotilla",
  "app.kubernetes.io/component": "nats",
} as const;
const ports = { client: 4_222, routes: 6_222, monitor: 8_222 } as const;
/** Leaders of streams move to other servers first. */
const stopSeconds = 60;
/** Raft's own logs are beside the streams. */
const diskPerStore = 2;

/** Three servers as a StatefulSet: each keeps its name, its address and its disk. */
export function natsManifests(
  plan: NatsPlan,
  { namespace, secret }: { namespace: string | undefined; secret: string },
): Manifest[] {
  const metadata = objectMeta("nats", namespace, labels);
  const at = { name: "$POD_NAME", hosts: natsHosts, folder: "/data" };
  const config = serverConfig(plan, at);
  return [
    { apiVersion: "v1", kind: "ConfigMap", metadata, data: { "server.conf": config } },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata,
      spec: {
        clusterIP: "None",
        // Servers find each other before they are ready.
        publishNotReadyAddresses: true,
        selector: labels,
        ports: Object.entries(ports).map(([name, port]) => ({ name, port, targetPort: name })),
      },
    },
    {
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      metadata,
      spec: {
        maxUnavailable: commented("Two of three have to be there.", 1),
        selector: { matchLabels: labels },
      },
    },
    {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata,
      spec: {
        podSelector: { matchLabels: labels },
        policyTypes: ["Ingress"],
        ingress: [
          {
            from: [{ podSelector: { matchLabels: labels } }],
            ports: [{ port: ports.routes }],
          },
          {
            from: [{ podSelector: { matchLabels: { "app.kubernetes.io/name": "flotilla" } } }],
            ports: [{ port: ports.client }, { port: ports.monitor }],
          },
        ],
      },
    },
    { apiVersion: "apps/v1", kind: "StatefulSet", metadata, spec: statefulSet(plan, secret) },
  ];
}

function statefulSet({ storeGib }: NatsPlan, secret: string): Yaml {
  const health = (query: string) => ({
    httpGet: { path: `/healthz${query}`, port: "monitor" },
    timeoutSeconds: 5,
  });
  return {
    serviceName: "nats",
    replicas: natsServers,
    // A cluster of three has a leader once two of them are there.
    podManagementPolicy: "Parallel",
    selector: { matchLabels: labels },
    template: {
      metadata: { labels },
      spec: {
        ...podSecurity,
        terminationGracePeriodSeconds: stopSeconds,
        affinity: commented("Two servers on one machine would be lost together.", {
          podAntiAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: [
              { labelSelector: { matchLabels: labels }, topologyKey: "kubernetes.io/hostname" },
            ],
          },
        }),
        containers: [
          {
            name: "nats",
            image: natsImage,
            args: ["-c", "/etc/nats/server.conf"],
            env: [
              { name: "POD_NAME", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
              fromSecret("NATS_PASSWORD", secret),
            ],
            ports: Object.entries(ports).map(([name, containerPort]) => ({ name, containerPort })),
            startupProbe: {
              ...health("?js-enabled-only=true"),
              periodSeconds: 2,
              failureThreshold: 90,
            },
            livenessProbe: { ...health("?js-enabled-only=true"), periodSeconds: 30 },
            // The next server is restarted once this one has caught up.
            readinessProbe: { ...health("?js-server-only=true"), periodSeconds: 5 },
            securityContext: containerSecurity,
            resources: { requests: { cpu: "500m", memory: "512Mi" }, limits: { memory: "2Gi" } },
            volumeMounts: [
              { name: "config", mountPath: "/etc/nats", readOnly: true },
              { name: "data", mountPath: "/data" },
            ],
          },
        ],
        volumes: [{ name: "config", configMap: { name: "nats" } }],
      },
    },
    volumeClaimTemplates: [
      {
        metadata: { name: "data" },
        spec: {
          accessModes: ["ReadWriteOnce"],
          resources: { requests: { storage: `${storeGib * diskPerStore}Gi` } },
        },
      },
    ],
  };
}
