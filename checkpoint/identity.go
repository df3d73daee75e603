package checkpoint

import (
	"fmt"
	"strings"
)

// IdentityQuery asks a server of either flavor who it is, with two columns a
// row: name and value of a variable. It needs no privilege.
const IdentityQuery = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id', 'hostname', 'port', 'version')"

// Identity says which server answered [IdentityQuery]: on MySQL its
// server_uuid. MariaDB has no such thing, and neither its server_id (equal on
// all nodes of a Galera cluster) nor its host is enough alone, so there it is
// server_id@hostname:port. The same string is compared wherever two sessions
// must be on one server: position, lease, dump and SQL.
func Identity(variables map[string]string) (Flavor, string, error) {
	if strings.Contains(strings.ToLower(variables["version"]), "mariadb") {
		if variables["hostname"] == "" || variables["port"] == "" || variables["server_id"] == "" {
			return "", "", fmt.Errorf("identify server: MariaDB shows no hostname, port or server_id")
		}
		return MariaDB, variables["server_id"] + "@" + variables["hostname"] + ":" + variables["port"], nil
	}
	if variables["server_uuid"] == "" {
		return "", "", fmt.Errorf("identify server: version %q shows no server_uuid", variables["version"])
	}
	return MySQL, variables["server_uuid"], nil
}
