import { basename } from "node:path";
import { FlotillaError } from "../../base/errors.ts";
import { dataFolder, type DeployFiles, type DeployPlan } from "./plan.ts";

export type SystemdOptions = {
  /** The full path of the project's folder, which has its packages. */
  folder: string;
  /** The full path of the program of Node. */
  node: string;
};

const file = "flotilla.service";
const environmentFile = "/etc/flotilla/flotilla.env";
/** What a config or its flag got wrong isn't mended by another start. */
const wrongUsage = 2;

/** A unit that runs one pod on a machine, as a user that is made for it. */
export function systemdFiles(plan: DeployPlan, options: SystemdOptions): DeployFiles {
  const { folder, node } = options;
  const { stopSeconds, store, knowsCallers } = plan;
  const program = `${folder}/node_modules/flotilla/bin/flotilla.js`;
  const isInHome = [folder, node].some((path) => /^\/(?:home|root|run\/user)\//.test(path));
  const secrets = [
    ...(store.kind === "postgres" ? ["FLOTILLA_STORE=postgres://user:password@host/database"] : []),
    ...(knowsCallers ? [] : ["FLOTILLA_API_KEYS=…, and FLOTILLA_HOST=0.0.0.0 for other machines"]),
    "what handlers read, such as keys of providers",
  ];
  const variables = {
    FLOTILLA_DATA_DIR: dataFolder,
    FLOTILLA_PORT: String(plan.port),
    FLOTILLA_ADMIN_PORT: String(plan.adminPort),
    ...(store.kind === "sqlite" && {
      FLOTILLA_STORE: `sqlite:${dataFolder}/${basename(store.path)}`,
    }),
  };
  const text = `# One pod, made by \`flotilla deploy systemd\`. Its secrets are in ${environmentFile}, which only root
# may read (mode 0600), one NAME=value a line:
${secrets.map((each) => `#   ${each}`).join("\n")}

[Unit]
Description=Flotilla
Documentation=https://www.npmjs.com/package/flotilla
Wants=network-online.target
After=network-online.target
# A pod that can't reach its store ends, and is started again until it can.
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory=${plainPath(folder)}
EnvironmentFile=${environmentFile}
${Object.entries(variables)
  .map(([name, value]) => `Environment=${quoted(`${name}=${value}`)}`)
  .join("\n")}
ExecStart=${[node, program, "serve"].map(argument).join(" ")}
Restart=always
RestartSec=2
RestartPreventExitStatus=${wrongUsage}
# The pod ends what it has begun; what is left of its processes is killed.
KillMode=mixed
# shutdownMs + 2 × graceMs of the config.
TimeoutStopSec=${stopSeconds}
LimitNOFILE=65536

# A user of its own, and ${dataFolder} as the only folder that it may write to.
DynamicUser=yes
User=flotilla
StateDirectory=flotilla
StateDirectoryMode=0700
UMask=0077
ProtectSystem=strict
ProtectHome=${isInHome ? "read-only" : "yes"}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
# Node asks the kernel for addresses of the machine.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
# Node compiles while it runs, so MemoryDenyWriteExecute can't be set.

[Install]
WantedBy=multi-user.target
`;
  return { [file]: text };
}

/** An argument of a command, in which systemd sees neither specifiers nor variables. */
function argument(text: string): string {
  return quoted(text).replaceAll("$", "$$$$");
}

function quoted(text: string): string {
  const escaped = withoutSpecifiers(text).replaceAll(/["\\]/g, "\\$&");
  return /^[\w./:=@%-]+$/.test(text) ? escaped : `"${escaped}"`;
}

/** A path stands to the end of its line, without quotes. */
function plainPath(path: string): string {
  return withoutSpecifiers(path);
}

function withoutSpecifiers(text: string): string {
  // oxlint-disable-next-line no-control-regex
  if (!/[\u0000-\u001f\u007f]/.test(text)) return text.replaceAll("%", "%%");
  throw new FlotillaError(
    "invalid_option",
    `${JSON.stringify(text.slice(0, 200))} has characters that no unit can name: rename the folder`,
  );
}
