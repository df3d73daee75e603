-- The relay's account, for deploy/compose.yaml alone.
CREATE USER 'towpath'@'%' IDENTIFIED BY 'towpath';
