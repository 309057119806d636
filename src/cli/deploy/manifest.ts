import { natsServers } from "./nats-config.ts";
import type { Yaml } from "./yaml.ts";

/** A manifest of Kubernetes. */
export type Manifest = { readonly [key: string]: Yaml | undefined };

/** The servers that are deployed with the pods, by the names that their StatefulSet gives them. */
export const natsHosts = Array.from({ length: natsServers }, (_, nth) => `nats-${nth}.nats`);

/** The user of the images of Node, which images of NATS run under as well. */
const userId = 1_000;

/** What every pod of this deployment has. */
export const podSecurity = {
  // None asks the API of Kubernetes for anything.
  automountServiceAccountToken: false,
  securityContext: {
    runAsNonRoot: true,
    runAsUser: userId,
    runAsGroup: userId,
    fsGroup: userId,
    seccompProfile: { type: "RuntimeDefault" },
  },
} as const;

/** What every container of this deployment has. */
export const containerSecurity = {
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ["ALL"] },
} as const;

/** Without a namespace a manifest goes to the one that `kubectl` uses. */
export function objectMeta(
  name: string,
  namespace: string | undefined,
  labels: Readonly<Record<string, string>>,
): Yaml {
  return { name, namespace, labels };
}

/** A variable by its name in a Secret, so that no manifest holds its value. */
export function fromSecret(name: string, from: string): Yaml {
  return { name, valueFrom: { secretKeyRef: { name: from, key: name } } };
}
